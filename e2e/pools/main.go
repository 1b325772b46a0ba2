// Command pools tries sessions in VMs of pools: a shell, its terminal's size, leaving and going on, also over a kill of
// the agent, ends by idle and total limits, published ports, and users apart; and JupyterHub, whose users' notebooks
// run in VMs, by our spawner and by batchspawner in a Slurm of its own. Each in real virtual machines of a lab of its
// own, by the command line that users have. It needs root, and what scripts/install-packages test installs; JupyterHub
// comes from PyPI and npm. The last line is JSON.
package main

import (
	"cmp"
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

	"github.com/grange-project/grange/e2e/lab"
)

// figures is the line at the end.
type figures struct {
	Failed  int     `json:"failed"`
	Passed  int     `json:"passed"`
	VMs     int     `json:"vms"`
	Seconds float64 `json:"seconds"`
}

// test is one case. Its error says what is wrong.
type test struct {
	name  string
	try   func(context.Context, *bench) error
	limit time.Duration // 0: limit
}

// limit is how long a case may take; a notebook's server imports much, in an emulated VM.
const (
	limit    = 5 * time.Minute
	longHaul = 25 * time.Minute
)

// tests in their order: the first ones share one VM.
var tests = []test{
	{"shell", shellWorks, 0}, {"resize", resized, 0}, {"publish", publishes, 0}, {"detach", detaches, 0},
	{"killed-agent", goesOn, 0}, {"two-users", apart, 0}, {"two-terminals", takenOver, 0}, {"full", full, 0},
	{"end", ended, 0}, {"idle", idleEnds, 0}, {"total", totalEnds, 0}, {"no-detach", closes, 0},
	{"refused", refused, 0}, {"jupyterhub-pool", hubInPool, longHaul}, {"jupyterhub-slurm", hubInSlurm, longHaul},
}

// choose returns the cases that are to be tried.
func choose(only, skip string) (chosen []test) {
	for _, t := range tests {
		if (only == "" || has(only, t.name)) && !has(skip, t.name) {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// has reports whether a list with commas has a case: by its name, or by the group's before the first dash.
func has(list, name string) bool {
	group, _, _ := strings.Cut(name, "-")
	words := strings.Split(list, ",")
	return slices.Contains(words, name) || slices.Contains(words, group)
}

func ofHub(t test) bool { return t.limit == longHaul }

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve": // in a VM
		exitWith(serve(os.Args[2]))
	case len(os.Args) == 4 && os.Args[1] == "connect": // as another user
		exitWith(connect(os.Args[2], os.Args[3]))
	}
	only := flag.String("only", "", "cases to try, separated by commas, with those that they need; none: all")
	skip := flag.String("skip", "", "cases not to try, separated by commas")
	programs := flag.String("programs", "", "directory with grange and grange-guest; none: they are built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began, f := time.Now(), figures{}
	chosen := choose(*only, *skip)
	if slices.ContainsFunc(chosen, ofHub) && os.Getuid() == 0 && os.Getenv(namesVariable) == "" {
		status, err := withAccounts(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
	if err := f.all(ctx, *programs, chosen); err != nil {
		f.result("suite", err)
	}
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed > 0 {
		os.Exit(1)
	}
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (f *figures) result(name string, err error) {
	if err == nil {
		f.Passed++
		fmt.Println("ok  ", name)
		return
	}
	f.Failed++
	fmt.Printf("FAIL %s: %v\n", name, err)
}

func (f *figures) all(ctx context.Context, programs string, chosen []test) (err error) {
	if os.Getuid() != 0 {
		return errors.New("it needs root, for virtual machines and to be several users")
	}
	host, err := lab.Start(ctx, lab.Options{Config: config, Programs: programs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	b, err := newBench(host)
	if err != nil {
		return err
	}
	defer b.close()
	for _, t := range chosen {
		once, cancel := context.WithTimeout(ctx, cmp.Or(t.limit, limit))
		err := t.try(once, b)
		cancel()
		f.result(t.name, err)
		if err != nil && b.main != nil {
			fmt.Printf("the terminal had:\n%s\n", b.main.tail())
		}
	}
	f.VMs = b.vms
	b.close()
	if left := host.Leaks(ctx); len(left) > 0 {
		return fmt.Errorf("left on the host: %s", strings.Join(left, "; "))
	}
	if f.Failed > 0 {
		fmt.Printf("the agent's log:\n%s\n", host.AgentLog())
	}
	return nil
}
