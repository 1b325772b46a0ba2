package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/ledger"
)

// as is a caller of another user.
func (f *farmhouse) as(uid uint32) Caller {
	c := f.caller("")
	c.UID, c.GID, c.Groups = uid, uid, nil
	return c
}

// failed is the code with which a job gets no VM.
func (t *task) failed() string {
	t.f.Helper()
	return strings.TrimPrefix(t.problem().Type, "grange:")
}

// lost waits for a job that runs to lose its VM.
func (t *task) lost() *api.Problem {
	t.f.Helper()
	return t.endsBy(api.EventLost, api.EventFailed)
}

// TestImpossibleScratch: requests that this host can never hold say nothing of the host; others are not kept waiting.
func TestImpossibleScratch(t *testing.T) {
	f := newFarmhouse(t)
	scratch := uint64(16 * farm.TiB)
	for uid, want := range map[uint32]farm.Code{61001: ledger.CodeUserLimit, 0: farm.CodeTooBig} {
		for range 4 {
			if code := f.mustAsk(f.as(uid), api.JobRequest{Scratch: &scratch}).failed(); code != string(want) {
				t.Errorf("code %s, not %s", code, want)
			}
		}
	}
	if off := f.agent.healing.backOffs(); len(off) > 0 {
		t.Errorf("%+v", off)
	}
	f.mustAsk(f.as(61002), api.JobRequest{}).until(api.EventRunning)
}

// TestOneUserClosesNothing: failures that look like the host's, all of one user's VMs, close the host if a VM of the
// agent's own fails as well, and only then.
func TestOneUserClosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool // the host, for everybody
		micro  bool
		want   string // what backs off in the end
	}{
		"the host is sound":       {false, true, "user"},
		"the host is broken":      {true, true, "host user"},
		"nothing of its own here": {true, false, "user"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmhouse(t)
			const image = "sl9"
			if _, err := f.agent.images.Import(t.Context(), image, f.dir+"/image", nil); err != nil {
				t.Fatal(err)
			}
			listen := f.host.Refuse
			f.host.Refuse = func(m hyper.Machine) error {
				if r, err := decodeRecord(m.Metadata); c.broken || err == nil && r.Image == image {
					return &farm.Error{Kind: farm.Unavailable, Code: hyper.CodeRefused, Message: "no"}
				}
				return listen(m)
			}
			if !c.micro {
				if err := f.agent.images.Remove("micro", func(string) bool { return false }); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if code := f.mustAsk(f.as(61001),
					api.JobRequest{Image: image}).failed(); code != string(hyper.CodeRefused) {
					t.Fatalf("code %s", code)
				}
			}
			f.agent.healing.healOnce(time.Now())
			f.until("the end of the trial", func() bool {
				f.agent.breakers.mu.Lock()
				defer f.agent.breakers.mu.Unlock()
				return !f.agent.breakers.trying
			})
			var kinds []string
			for _, b := range f.agent.healing.backOffs() {
				kinds = append(kinds, b.Kind)
			}
			if got := strings.Join(kinds, " "); got != c.want {
				t.Errorf("%q backs off, not %q", got, c.want)
			}
		})
	}
}
