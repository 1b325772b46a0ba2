package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		do    func(*notes)
		want  string
	}{
		"at once":            {0, func(n *notes) { n.say("waiting: %d", 1); n.say("waiting: %d", 2) }, "waiting: 1\nwaiting: 2\n"},
		"a moment":           {10 * time.Second, func(n *notes) { n.say("waiting"); time.Sleep(9 * time.Second); n.close() }, ""},
		"longer":             {10 * time.Second, func(n *notes) { n.say("waiting"); time.Sleep(11 * time.Second); n.close() }, "waiting\n"},
		"the newest":         {10 * time.Second, func(n *notes) { n.say("a"); time.Sleep(6 * time.Second); n.say("b"); time.Sleep(6 * time.Second) }, "b\n"},
		"none after a start": {10 * time.Second, func(n *notes) { n.close(); n.say("retry"); time.Sleep(time.Minute) }, ""},
		"again":              {time.Second, func(n *notes) { n.say("a"); time.Sleep(2 * time.Second); n.say("b"); time.Sleep(2 * time.Second) }, "a\nb\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				n := &notes{out: &out, after: c.after}
				c.do(n)
				synctest.Wait()
				if out.String() != c.want {
					t.Errorf("told %q, want %q", out.String(), c.want)
				}
			})
		})
	}
}
