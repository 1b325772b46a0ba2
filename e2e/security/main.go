// Command security attacks real agents and servers, as the people of docs/security.md would who want more than they
// were granted: other accounts of the host, guests, users of a batch system, tenants, hosts that were taken over,
// administrators of one cell. Each attack names the hole that it tries. The last line is JSON with how many are open;
// any that is open fails the run.
//
// With -from another commit's programs are attacked, which shows that an attack finds what it is for.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// attack is one story. Its run returns nil when the product held, and a breach when the hole is open.
type attack struct {
	hole string // as docs/security.md calls it: "C1"
	name string // what must hold
	run  func(ctx context.Context, s *site) error
}

// errBreach is what the error of an attack that succeeded wraps. All other errors are attacks that could not be made.
var errBreach = errors.New("open")

func breach(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBreach, fmt.Sprintf(format, args...))
}

// figures are the line at the end.
type figures struct {
	Holes   int     `json:"holes"` // that are open
	Cases   int     `json:"cases"` // attacks that were made
	Failed  int     `json:"failed"`
	Commit  string  `json:"commit"`
	Seconds float64 `json:"seconds"`
}

// attackTime bounds one attack, the start of what it attacks included.
const attackTime = 5 * time.Minute

func main() {
	if len(os.Args) > 2 && os.Args[1] == actFlag {
		act(os.Args[2], os.Args[3:])
		return
	}
	from := flag.String("from", "", "attack the programs of this `COMMIT`, not those of this tree")
	only := flag.String("only", "", "only these `HOLES`, as in C1,H2")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := new(figures)
	began := time.Now()
	err := run(ctx, f, *from, *only)
	if err != nil {
		f.Failed++
		fmt.Fprintln(os.Stderr, "security:", err)
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Holes+f.Failed > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, f *figures, from, only string) (err error) {
	chosen, err := choose(attacks, only)
	if err != nil {
		return err
	}
	s, err := newSite(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f.Commit = s.commit
	for _, a := range chosen {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.count(a, try(ctx, a, s))
	}
	return nil
}

func try(ctx context.Context, a attack, s *site) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attackTime, fmt.Errorf("no end within %v", attackTime))
	defer cancel()
	return a.run(ctx, s)
}

func (f *figures) count(a attack, err error) {
	f.Cases++
	result := "held  "
	switch {
	case errors.Is(err, errBreach):
		f.Holes++
		result = "OPEN  "
	case err != nil:
		f.Failed++
		result = "FAILED"
	}
	fmt.Printf("%s  %-4s %s\n", result, a.hole, a.name)
	if err != nil {
		fmt.Printf("        %s\n", strings.ReplaceAll(err.Error(), "\n", "\n        "))
	}
}

// choose returns the attacks on the holes of a comma-separated list; on all where it is empty.
func choose(all []attack, only string) ([]attack, error) {
	if only == "" {
		return all, nil
	}
	var chosen []attack
	for hole := range strings.SplitSeq(only, ",") {
		n := len(chosen)
		for _, a := range all {
			if strings.EqualFold(a.hole, hole) {
				chosen = append(chosen, a)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("no attack on a hole %q; there are %s", hole, strings.Join(holes(all), ", "))
		}
	}
	return chosen, nil
}

func holes(all []attack) []string {
	var names []string
	for _, a := range all {
		names = append(names, a.hole)
	}
	return slices.Compact(names)
}
