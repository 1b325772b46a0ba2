package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
)

// phaseNames are the phases of a start, which must not overlap.
func phaseNames(t *testing.T, all []api.StartPhase) string {
	t.Helper()
	var names []string
	end := 0.0
	for _, p := range all {
		if p.At < end-1 || p.Milliseconds < 0 { // each is rounded
			t.Errorf("%s begins at %v, and the one before ends at %v", p.Name, p.At, end)
		}
		end = p.At + p.Milliseconds
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// TestJobsForTheServer: a job that waits says why, one that runs what its start took, and its record says it too, after
// a restart of the agent as well.
func TestJobsForTheServer(t *testing.T) {
	f := newFarmhouse(t)
	if jobs := f.agent.Jobs(); len(jobs) != 0 {
		t.Errorf("%+v", jobs)
	}
	all := f.agent.topo.Online
	f.agent.ledger.ClaimMetal("slurm/99", all, 0, 0)
	x := f.mustAsk(f.caller("7"), api.JobRequest{})
	x.until(api.EventWaiting)
	only := func() fleet.Job {
		t.Helper()
		jobs := f.agent.Jobs()
		if len(jobs) != 1 {
			t.Fatalf("%+v", jobs)
		}
		return jobs[0]
	}
	j := only()
	if j.State != fleet.JobWaiting || !strings.Contains(j.Why, "slurm/99 on the host holds CPUs") || j.ID != x.id ||
		j.Batch != "slurm/7" || j.Cores != 1 || j.Asked.IsZero() || phaseNames(t, j.Phases) != "image" {
		t.Errorf("%+v", j)
	}
	f.agent.ledger.ReleaseMetal("slurm/99")
	x.until(api.EventRunning)
	const phases = "image grant disk define boot guest"
	if j = only(); j.State != fleet.JobRunning || j.Why != "" || phaseNames(t, j.Phases) != phases {
		t.Errorf("%+v", j)
	}
	f.agent.Usage.Look(x.id) // as once in a while
	f.close()
	f.open()
	var u api.Usage
	f.agent.vmMadeFor(x.id).cancel(errStopped)
	f.until("its record", func() bool {
		if err := f.agent.Usage.Each(time.Time{}, time.Now().Add(time.Hour), func(r api.Usage) error {
			u = r
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return u.ID != ""
	})
	if u.Job != x.id || !u.Asked.Equal(j.Asked) || phaseNames(t, u.Phases) != phases {
		t.Errorf("%+v", u)
	}
}
