package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
)

// TestHold: a node whose image backs off is DOWN, with a reason that names the image, and nothing is started for it;
// when the time is over it is given back, once.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "ALLOCATED", "POWERING_UP"),
			"vwn2": cloud("vwn2", "DOWN"), "vwn3": cloud("vwn3", "IDLE", "POWERED_DOWN")},
			jobs: map[string]*Job{"5": {State: "CONFIGURING"}}, on: map[string]string{"5": "vwn1"}}
		admin := c.nodes["vwn2"]
		admin.Reason = "held for repair"
		c.nodes["vwn2"] = admin
		h := &host{off: []api.BackOff{{Kind: "image", Name: "worker", Until: time.Now().Add(time.Minute)}},
			workers: []api.Worker{{Name: "vwn2"}}}
		p := testPool(c, h)
		file := t.TempDir() + "/resume.json"
		writeFile(t, file, `{"jobs":[{"job_id":5,"nodes_resume":"vwn1"}]}`)
		if err := p.Resume(t.Context(), "vwn1", file); err == nil {
			t.Error("Resume says nothing of it")
		}
		if d := cmp.Diff([]string{"vwn1 DOWN", "job 5 now"}, c.told); d != "" {
			t.Error(d)
		}
		if n := c.nodes["vwn1"]; !n.held() || !strings.Contains(n.Reason, "image worker backs off until") {
			t.Errorf("the node says %+v", n)
		}
		w := &watch{Pool: p, twice: map[string]bool{}, busy: map[string]bool{}, look: make(chan struct{}, 1)}
		look := func() {
			if err := w.reconcile(t.Context()); err != nil {
				t.Error(err)
			}
		}
		c.told = nil
		for range 3 { // neither lost nor given back
			look()
		}
		if len(c.told)+len(h.stopped) > 0 {
			t.Errorf("%q %q", c.told, h.stopped)
		}
		time.Sleep(time.Minute)
		h.off[0].Trial = true // somebody else's VM is the one that is tried
		look()
		if len(c.told) > 0 {
			t.Errorf("while one is tried: %q", c.told)
		}
		h.off[0].Trial = false
		look()
		look()
		if d := cmp.Diff([]string{"vwn1 POWER_DOWN_FORCE"}, c.told); d != "" {
			t.Error(d)
		}
	})
}

// TestHolds: of several back-offs only those that the reason speaks of count, and the host's.
func TestHolds(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Minute)
	const reason = held + "image worker backs off until 10:31"
	for _, c := range []struct {
		b    api.BackOff
		want bool
	}{
		{api.BackOff{Kind: "image", Name: "worker", Until: later}, true},
		{api.BackOff{Kind: "image", Name: "work", Until: later}, false},
		{api.BackOff{Kind: "user", Name: "worker", Until: later}, false},
		{api.BackOff{Kind: "host", Until: later}, true},
		{api.BackOff{Kind: "image", Name: "worker", Until: now}, false},
		{api.BackOff{Kind: "image", Name: "worker", Until: now, Trial: true}, true},
	} {
		if got := holds(c.b, reason, now); got != c.want {
			t.Errorf("%+v: %v", c.b, got)
		}
	}
}

// TestCame: an agent is told once of each worker whose node Slurm has, and of none that has not come; a late one is
// told apart.
func TestCame(t *testing.T) {
	c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "ALLOCATED"),
		"vwn2": cloud("vwn2", "ALLOCATED", "POWERING_UP"), "vwn3": cloud("vwn3", "IDLE")}}
	h := &host{workers: []api.Worker{{Name: "vwn1", Unseen: true, Created: time.Now()},
		{Name: "vwn2", Unseen: true, Created: time.Now()}, {Name: "vwn3", Created: time.Now()}}}
	p := testPool(c, h)
	w := &watch{Pool: p, twice: map[string]bool{}, busy: map[string]bool{}, look: make(chan struct{}, 1)}
	for range 2 {
		if err := w.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"vwn1"}, h.came); d != "" {
		t.Error(d)
	}
	if err := p.Prolog(t.Context(), "7", "vwn3", time.Minute); err != nil ||
		!slices.Equal(h.came, []string{"vwn1", "vwn3"}) {
		t.Errorf("a job's prolog tells as well: %v, %q", err, h.came)
	}
	if err := p.Fail(t.Context(), "vwn2"); err != nil || !slices.Contains(h.stopped, "vwn2 late") {
		t.Errorf("%v, %q", err, h.stopped)
	}
}

// TestRefusedIsNotLost: the watch leaves alone what Resume was told itself.
func TestRefusedIsNotLost(t *testing.T) {
	c := &cluster{nodes: map[string]Node{"vwn1": cloud("vwn1", "ALLOCATED", "POWERING_UP")}}
	w := &watch{Pool: testPool(c, &host{}), twice: map[string]bool{}, busy: map[string]bool{},
		look: make(chan struct{}, 1)}
	w.ended(t.Context(), api.Worker{Name: "vwn1", State: api.WorkerEnded, Refused: true})
	if len(c.told) > 0 {
		t.Errorf("%q", c.told)
	}
}
