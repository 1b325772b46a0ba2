// Command net sends real frames between guests on one bridge of a host in a network namespace, and counts what arrives
// that should not: everything that a hostile guest may forge, and what a network that isolates or is closed keeps back;
// and that what is honest arrives. It has guests ask the host's dnsmasq for their addresses. It measures guests that
// are held to a bandwidth and send more. It makes and ends guests many times, kills who filters them, and looks for
// what is left. It needs root, and no virtual machine. The last line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// figures is the line at the end.
type figures struct {
	Leaked   int     `json:"leaked_packets"`   // that an isolated or closed guest got to others
	Spoofed  int     `json:"spoofed_accepted"` // forged ones that arrived anywhere
	Left     int     `json:"leaked"`           // rules, sets, devices that are left
	Failed   int     `json:"failed"`
	Passed   int     `json:"passed"`
	Off      float64 `json:"bandwidth_off_percent"` // the furthest that a guest was from what it is held to
	Frames   int     `json:"forged_frames"`
	Cycles   int     `json:"cycles"`
	Killed   int     `json:"killed"` // cycles in which the one who filters was killed
	Seconds  float64 `json:"seconds"`
	problems []string
}

// What a process of ours is for, when it is not the first one.
const (
	inside   = "GRANGE_NET_INSIDE" // the test, in a network of its own
	asGuest  = "GRANGE_NET_GUEST"  // a guest with a network stack: its MAC
	asPing   = "GRANGE_NET_PING"   // one echo request to this address
	asAgent  = "GRANGE_NET_AGENT"  // fences, restores, releases until it is killed: an order
	asDHCP6  = "GRANGE_NET_DHCP6"  // a DHCPv6 client
	asFencer = "GRANGE_NET_FENCER" // fences and restores until it is killed: a network.VM
	asEcho   = "GRANGE_NET_ECHO"   // answers on a port
	asCall   = "GRANGE_NET_CALL"   // a connection to this address
)

func main() {
	runtime.LockOSThread() // a network namespace is a thread's
	switch {
	case os.Getenv(asGuest) != "":
		fatal(beGuest(os.Getenv(asGuest)))
	case os.Getenv(asPing) != "":
		fatal(bePing(os.Getenv(asPing)))
	case os.Getenv(asDHCP6) != "":
		fatal(beDHCP6())
	case os.Getenv(asAgent) != "":
		fatal(beAgent(os.Getenv(asAgent)))
	case os.Getenv(asFencer) != "":
		fatal(beFencer(os.Getenv(asFencer)))
	case os.Getenv(asEcho) != "":
		fatal(beEcho(os.Getenv(asEcho)))
	case os.Getenv(asCall) != "":
		fatal(beCall(os.Getenv(asCall)))
	case os.Getenv(inside) == "":
		fatal(again())
	}
	f := figures{}
	flag.IntVar(&f.Cycles, "cycles", 500, "guests to make, filter and end, one after the other")
	only := flag.String("only", "", "cases whose names begin so, separated by commas; none: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	began := time.Now()
	f.all(ctx, *only)
	f.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	for _, p := range f.problems {
		fmt.Fprintln(os.Stderr, "net:", p)
	}
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Leaked+f.Spoofed+f.Left+f.Failed > 0 {
		os.Exit(1)
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "net:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// again runs this program in a network namespace of its own.
func again() error {
	if os.Getuid() != 0 {
		return errors.New("it needs root, for network namespaces")
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	return err
}

// test is one case: what it counts, it counts in figures, and an error is a failure.
type test struct {
	name string
	run  func(*lab, *figures) error
}

// tests are all topics. Each is a file; a line more is a topic more.
func tests() []test {
	var all []test
	for _, topic := range [][]test{forgedTests(), honestTests(), apartTests(), madeTests(), stackTests(),
		bandwidthTests(), dhcpTests(), groupsTests(), cycleTests()} {
		all = append(all, topic...)
	}
	return all
}

func (f *figures) all(ctx context.Context, only string) {
	l, err := newLab(ctx)
	if err != nil {
		f.fail("lab", err)
		return
	}
	chosen := func(name string) bool {
		for prefix := range strings.SplitSeq(only, ",") {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	for _, t := range tests() {
		if !chosen(t.name) || ctx.Err() != nil {
			continue
		}
		before := f.Leaked + f.Spoofed + f.Left
		err := t.run(l, f)
		switch {
		case err != nil:
			f.fail(t.name, err)
		case f.Leaked+f.Spoofed+f.Left == before:
			f.Passed++
			fmt.Println("ok  ", t.name)
		default:
			f.problems = append(f.problems, t.name+": frames arrived, or something is left: see the figures")
		}
	}
	if err := ctx.Err(); err != nil {
		f.fail("all", err)
	}
}

func (f *figures) fail(name string, err error) {
	f.Failed++
	f.problems = append(f.problems, name+": "+err.Error())
}

// must runs commands of the lab until one fails.
func (l *lab) must(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if _, err := l.run(words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}
