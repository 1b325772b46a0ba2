// Command metal runs the packaged product on whole emulated hosts: Debian with its own kernel, KVM, systemd, libvirt,
// AppArmor and boot loader, two NUMA nodes and two threads a core.
//
//	metal test [-quick] [-run REGEXP]     the tests of this directory; the last line is JSON
//	metal up [-suite SUITE] [-hosts N] [-bare]
//	metal down
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{"test": test, "up": up, "down": down}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: metal test|up|down [flags]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "metal:", err)
		os.Exit(1)
	}
}

// figures are the line at the end of the tests.
type figures struct {
	Failed  int  `json:"failed"`
	Passed  int  `json:"passed"`
	Skipped int  `json:"skipped"`
	KVM     bool `json:"kvm"`
	Nodes   int  `json:"nodes"`
	SMT     bool `json:"smt"`
	Reboots int  `json:"reboots"`
	Seconds int  `json:"seconds"`
}

// facts are what the tests found out of the hosts that they ran on. They write them for the figures.
type facts struct {
	KVM     bool `json:"kvm"`
	Nodes   int  `json:"nodes"`
	SMT     bool `json:"smt"`
	Reboots int  `json:"reboots"`
}

// Environment of the tests: where packages lie, whether only the quick ones are wanted, and where their facts go.
const (
	packagesVariable = "GRANGE_METAL_PACKAGES"
	quickVariable    = "GRANGE_METAL_QUICK"
	factsVariable    = "GRANGE_METAL_FACTS"
)

func test(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("test", flag.ExitOnError)
	quick := flags.Bool("quick", false, "only the quick tests, on one release of Debian")
	only := flags.String("run", "", "only tests that match this `REGEXP`")
	packages := flags.String("packages", "", "`DIR` with deb packages; those of this tree are built otherwise")
	flags.Parse(args)
	began := time.Now()
	work, err := os.MkdirTemp("", "grange-metal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dist, err := metallab.Packages(ctx, *packages)
	if err != nil {
		return err
	}
	factsFile := filepath.Join(work, "facts")
	cmd := exec.CommandContext(ctx, "go", "run", "./e2e/gotest", "-timeout", "50m", "-run", *only, "--",
		"-parallel="+strconv.Itoa(max(2, runtime.NumCPU())), "./e2e/metal")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), packagesVariable+"="+dist, factsVariable+"="+factsFile)
	if *quick {
		cmd.Env = append(cmd.Env, quickVariable+"=1")
	}
	counted := &tail{}
	cmd.Stdout, cmd.Stderr = counted, os.Stderr
	failed := cmd.Run()
	f, err := counted.figures()
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(factsFile); err == nil {
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
	}
	f.Seconds = int(time.Since(began).Seconds())
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return failed
	case f.Passed == 0:
		return fmt.Errorf("no test matches %q", *only)
	case f.Skipped > 0 && !*quick:
		return fmt.Errorf("%d tests were skipped", f.Skipped)
	}
	return nil
}

// tail passes output on and keeps its end.
type tail struct{ last []byte }

func (t *tail) Write(text []byte) (int, error) {
	t.last = append(t.last, text...)
	t.last = t.last[max(0, len(t.last)-1000):]
	return os.Stdout.Write(text)
}

var sums = regexp.MustCompile(`(\d+) passed, (\d+) failed, (\d+) skipped\s*$`)

func (t *tail) figures() (f figures, err error) {
	found := sums.FindSubmatch(t.last)
	if found == nil {
		return f, fmt.Errorf("the tests came to no end")
	}
	for i, to := range []*int{&f.Passed, &f.Failed, &f.Skipped} {
		if *to, err = strconv.Atoi(string(found[i+1])); err != nil {
			return f, err
		}
	}
	return f, nil
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	suite := flags.String("suite", "bookworm", "`SUITE` of Debian: bookworm or trixie")
	hosts := flags.Int("hosts", 1, "`NUMBER` of hosts, on one network")
	bare := flags.Bool("bare", false, "without grange")
	packages := flags.String("packages", "", "`DIR` with deb packages; those of this tree are built otherwise")
	flags.Parse(args)
	l, err := metallab.Open()
	if err != nil {
		return err
	}
	o := metallab.Options{Suite: *suite, Keep: true}
	if !*bare {
		dist, err := metallab.Packages(ctx, *packages)
		if err != nil {
			return err
		}
		if o.Debs, err = metallab.AgentDebs(dist); err != nil {
			return err
		}
	}
	if o.LAN, err = metallab.NewLAN(); err != nil {
		return err
	}
	for i := range *hosts {
		o.Name, o.Peer = fmt.Sprintf("metal%d", i+1), i+1
		h, err := l.Start(ctx, o)
		if err != nil {
			return err
		}
		fmt.Printf("%s is up, to the others 10.77.0.%d: ssh -i %s -p %d -o StrictHostKeyChecking=no -o "+
			"UserKnownHostsFile=/dev/null root@127.0.0.1\n", h.Name, o.Peer, l.KeyFile(), h.Port())
	}
	fmt.Println("make metal-down ends them")
	return nil
}

func down(ctx context.Context, args []string) error {
	flag.NewFlagSet("down", flag.ExitOnError).Parse(args)
	l, err := metallab.Open()
	if err != nil {
		return err
	}
	hosts, err := l.Running(ctx)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if err := h.Stop(ctx); err != nil {
			return err
		}
		fmt.Println(h.Name, "has ended")
	}
	return nil
}
