package starts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestPhases: each has its place, none is changed when it was handed out, and there is an end of them.
func TestPhases(t *testing.T) {
	var p Phases
	first := p.Add(noon, "image", noon.Add(time.Second), noon.Add(1500*time.Millisecond))
	p.Add(noon, "grant", noon.Add(2*time.Second), noon.Add(time.Second)) // the clock was set back
	if d := cmp.Diff([]api.StartPhase{{Name: "image", At: 1000, Milliseconds: 500}}, first); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]api.StartPhase{{Name: "image", At: 1000, Milliseconds: 500}, {Name: "grant", At: 2000}},
		p.All()); d != "" {
		t.Error(d)
	}
	_ = append(first, api.StartPhase{Name: "another's"})
	for range 2 * api.MaxStartPhases {
		p.Add(noon, "boot", noon, noon)
	}
	if all := p.All(); len(all) != api.MaxStartPhases || all[1].Name != "grant" {
		t.Errorf("%d phases: %+v", len(all), all)
	}
}

// TestStates: each word of the agent is one of the server's.
func TestStates(t *testing.T) {
	for word, want := range map[string]string{"waiting": "waiting", "starting": "starting", "running": "running",
		"suspended": "suspended", "suspended (caller stopped)": "suspended", "kept": "kept",
		"running (unresponsive)": "unresponsive", "": "starting"} {
		if j := Job(api.Usage{Job: "1"}, word, ""); j.State != want {
			t.Errorf("%q is %q, want %q", word, j.State, want)
		}
	}
}

// TestBounded: who has a VM is told first, and those who wait the longest.
func TestBounded(t *testing.T) {
	all := []fleet.Job{{ID: "late", State: fleet.JobRunning, Asked: noon.Add(time.Hour)}}
	for n := range fleet.MaxHostJobs + 5 {
		all = append(all, fleet.Job{ID: fmt.Sprintf("%05d", 9999-n), State: fleet.JobWaiting,
			Asked: noon.Add(-time.Duration(n) * time.Second)})
	}
	some := Bounded(all)
	if len(some) != fleet.MaxHostJobs || some[0].ID != "late" || some[1].ID != "08995" || some[2].ID != "08996" {
		t.Errorf("%d: %v", len(some), some[:3])
	}
}
