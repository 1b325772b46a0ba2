package runner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api"
)

func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		do    func(*notes)
		want  string
	}{
		"at once": {0, func(n *notes) { n.say("waiting: %d", 1); n.say("waiting: %d", 2) },
			"grange: waiting: 1\ngrange: waiting: 2\n"},
		"a moment": {10 * time.Second,
			func(n *notes) { n.say("waiting"); time.Sleep(9 * time.Second); n.close() }, ""},
		"longer": {10 * time.Second,
			func(n *notes) { n.say("waiting"); time.Sleep(11 * time.Second); n.close() }, "grange: waiting\n"},
		"the newest": {10 * time.Second,
			func(n *notes) { n.say("a"); time.Sleep(6 * time.Second); n.say("b"); time.Sleep(6 * time.Second) },
			"grange: b\n"},
		"none after a start": {10 * time.Second, func(n *notes) { n.close(); n.say("retry"); time.Sleep(time.Minute) },
			""},
		"again": {time.Second,
			func(n *notes) { n.say("a"); time.Sleep(2 * time.Second); n.say("b"); time.Sleep(2 * time.Second) },
			"grange: a\ngrange: b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				n := newNotes(&out)
				n.after = c.after
				c.do(n)
				synctest.Wait()
				if out.String() != c.want {
					t.Errorf("told %q, want %q", out.String(), c.want)
				}
			})
		})
	}
}

// TestReminders holds how long whoever waits hears nothing.
func TestReminders(t *testing.T) {
	at := func(sleep time.Duration, n *notes, doing string) {
		n.wait(doing)
		time.Sleep(sleep)
	}
	for name, c := range map[string]struct {
		do   func(*notes)
		want string
	}{
		"a moment": {func(n *notes) { at(2900*time.Millisecond, n, "x"); n.close() }, ""},
		"every 4 s": {func(n *notes) { at(12*time.Second, n, "x") },
			"grange: waiting: x (3 s)\ngrange: waiting: x (7 s)\ngrange: waiting: x (11 s)\n"},
		"each phase": {func(n *notes) { at(2*time.Second, n, "x"); at(2*time.Second, n, "y") },
			"grange: waiting: y (1 s)\n"},
		"behind a note": {func(n *notes) {
			n.wait("x")
			time.Sleep(2 * time.Second)
			n.say("z")
			time.Sleep(3500 * time.Millisecond)
		}, "grange: z\ngrange: waiting: x (5 s)\n"},
		"nothing":      {func(n *notes) { at(time.Minute, n, "") }, ""},
		"quiet":        {func(n *notes) { n.quiet = true; at(time.Minute, n, "x") }, ""},
		"the job runs": {func(n *notes) { n.wait("x"); n.wait(""); n.close(); time.Sleep(time.Minute) }, ""},
		"behind the end": {func(n *notes) { n.close(); n.open(); at(4*time.Second, n, "x") },
			"grange: waiting: x (3 s)\n"},
		"a batch job": {func(n *notes) { n.pause = seldom; at(421*time.Second, n, "x") },
			"grange: waiting: x (60 s)\ngrange: waiting: x (180 s)\ngrange: waiting: x (420 s)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				n, done := newNotes(&out), make(chan struct{})
				go n.remind(done)
				c.do(n)
				close(done)
				synctest.Wait()
				if out.String() != c.want {
					t.Errorf("told %q, want %q", out.String(), c.want)
				}
			})
		})
	}
}

// TestWaitingFor has no phase behind which nobody knows what is waited for.
func TestWaitingFor(t *testing.T) {
	for _, name := range []string{"grant", "image", "disk", "define", "boot"} {
		if doing, known := waitingFor(api.JobEvent{Event: api.EventPhase,
			Phase: &api.Phase{Name: name}}); doing == "" || !known {
			t.Errorf("behind %s nobody knows what is waited for", name)
		}
	}
	if doing, known := waitingFor(api.JobEvent{Event: api.EventRunning}); doing != "" || !known {
		t.Error("a job that runs waits for nothing")
	}
}
