package vm

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLibvirtdHangs stops libvirtd and starts the agent anew: it serves, a job says what it waits for and runs when
// libvirtd goes on, and a job that ran all the time is not touched.
func TestLibvirtdHangs(t *testing.T) {
	running, input := startWithInput(t, "--", "sh", "-c", counting)
	host.KillAgent()
	if err := host.SignalLibvirtd(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer host.SignalLibvirtd(syscall.SIGCONT)
	agent := make(chan error, 1)
	began := time.Now()
	go func() { agent <- host.StartAgent(ctx(t)) }() // waits until the agent knows its VMs
	await := func(what string, done func(context.Context) bool) {
		t.Helper()
		for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
			if done(ctx(t)) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("never so: %s", what)
			}
		}
	}
	await("the agent serves", func(ctx context.Context) bool {
		h, err := host.Client.Host(ctx)
		return err == nil && h.Recovering != ""
	})
	t.Logf("the agent served after %v", time.Since(began))
	j := launch(t, host.Exec(ctx(t), "--", "echo", "done"))
	time.Sleep(12 * time.Second)
	if err := host.SignalLibvirtd(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-agent; err != nil {
		t.Fatal(err)
	}
	r := j.finish(t)
	r.want(t, 0, "done\n")
	if n := strings.Count(r.errors, "not known yet which VMs run on this host"); n < 3 {
		t.Errorf("in 12 seconds it said what it waits for %d times:\n%s", n, r.errors)
	}
	input.Write([]byte("go\n"))
	running.finish(t).want(t, 3, countingOutput())
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
