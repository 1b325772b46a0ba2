package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// clockOff asks a job that prints its time for each line how far its clock is off the host's: at least.
func clockOff(t *testing.T, input io.Writer, out *bufio.Reader) time.Duration {
	t.Helper()
	asked := time.Now()
	fmt.Fprintln(input)
	line, err := out.ReadString('\n')
	came := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	var sec, usec int64
	if _, err := fmt.Sscan(line, &sec, &usec); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	switch now := time.UnixMicro(sec*1e6 + usec); {
	case now.Before(asked):
		return asked.Sub(now)
	case now.After(came):
		return now.Sub(came)
	}
	return 0
}

// TestClock: the guest's clock is right after each way of stopping the CPUs of a job's VM.
func TestClock(t *testing.T) {
	const near, pause = 100 * time.Millisecond, 3 * time.Second
	cmd := host.Exec(ctx(t), "--", "sh", "-c", "while read x; do set -- $(busybox adjtimex | grep time.tv); echo $2 $4; done")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(output)
	if off := clockOff(t, input, out); off > near {
		t.Fatalf("the clock is off by %v from the start", off)
	}
	name := vmName(t)
	order := func(do func(context.Context, string) (api.VM, error)) func() error {
		return func() error { _, err := do(ctx(t), name); return err }
	}
	signal := func(s syscall.Signal) func() error { return func() error { return cmd.Process.Signal(s) } }
	for _, way := range []struct {
		name        string
		stop, start func() error
		later       time.Duration // for how long the clock may be wrong: nobody hears when the VM goes on
	}{
		{"suspend and resume", order(host.Client.Suspend), order(host.Client.Resume), 0},
		{"TSTP and CONT", signal(syscall.SIGTSTP), signal(syscall.SIGCONT), 2 * time.Second},
	} {
		if err := way.stop(); err != nil {
			t.Fatal(way.name, err)
		}
		await(t, host, "a suspended VM", hasState("suspended"))
		time.Sleep(pause)
		if err := way.start(); err != nil {
			t.Fatal(way.name, err)
		}
		until := time.Now().Add(way.later)
		off := clockOff(t, input, out)
		for off > near && time.Now().Before(until) {
			off = clockOff(t, input, out)
		}
		if off > near {
			t.Errorf("%s: the clock is off by %v", way.name, off)
		}
	}
	input.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
