package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// TestCloudOnTheCPUsOfItsJob: the VM goes where the batch system put the job that holds its place, and nowhere else.
func TestCloudOnTheCPUsOfItsJob(t *testing.T) {
	f := newFarmhouse(t)
	slurm := func(jobs ...farm.Allotment) {
		m := &f.agent.metal
		m.mu.Lock()
		defer m.mu.Unlock()
		m.read, m.at = func() []farm.Allotment { return jobs }, time.Time{}
	}
	online := slices.Collect(f.agent.topo.Online.All())
	last, first := farm.NewCPUSet(online[len(online)-1]), farm.NewCPUSet(online[0])
	slurm(slurmJob("7", last.String(), farm.GiB))
	w := f.cloud()
	w.Job = "slurm/7"
	f.want(w)
	o := f.seesState(w, farm.VMRunning)
	if !slices.Equal(o.Plan.VCPUs, []string{last.String()}) {
		t.Errorf("on CPUs %v, and its job on %v", o.Plan.VCPUs, last)
	}
	if facts := f.agent.Cloud.ReadFacts(); len(facts.Taken) != 0 {
		t.Errorf("the server is told that somebody else has %+v", facts.Taken)
	}
	f.mark(w)

	// The job is ended: the VM is wanted off, and holds nothing but its disks, also for another agent.
	slurm()
	w.Job, w.Power = "", string(farm.PowerOff)
	f.want(w)
	f.sees("given back", w, func(o fleet.Observed) bool { return o.State == string(farm.VMStopped) && o.Plan == nil })
	free := func() {
		t.Helper()
		if room, holders, _ := f.agent.ledger.View(0); len(holders) != 0 || room.Free.Len() != len(online) {
			t.Errorf("held by %v", holders)
		}
	}
	free()
	f.close()
	f.open()
	f.want(w)
	f.sees("given back", w, func(o fleet.Observed) bool { return o.State == string(farm.VMStopped) && o.Plan == nil })
	free()

	// Its place is reserved again, and is another one.
	slurm(slurmJob("8", last.String(), farm.GiB), slurmJob("9", first.String(), farm.GiB))
	w.Job, w.Power = "slurm/9", string(farm.PowerOn)
	f.want(w)
	if o = f.seesState(w, farm.VMRunning); !slices.Equal(o.Plan.VCPUs, []string{first.String()}) || !f.marked(w) {
		t.Errorf("on CPUs %v, and its job on %v; its disk is there: %v", o.Plan.VCPUs, first, f.marked(w))
	}
	if facts := f.agent.Cloud.ReadFacts(); len(facts.Taken) != 1 {
		t.Errorf("job 8 is somebody else's: %+v", facts.Taken)
	}
	// Reserved anew while it runs: it stays where it is until it starts again.
	slurm(slurmJob("10", last.String(), farm.GiB))
	w.Job = "slurm/10"
	f.want(w)
	f.sees("told", w, func(fleet.Observed) bool { return f.record(w).Wanted.Job == w.Job })
	w.Boots++
	f.want(w)
	if o = f.seesState(w, farm.VMRunning); !slices.Equal(o.Plan.VCPUs, []string{last.String()}) {
		t.Errorf("on CPUs %v, and its job on %v", o.Plan.VCPUs, last)
	}
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
	slurm()
	f.nothingLeft()
}
