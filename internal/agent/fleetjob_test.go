package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
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
	if facts := f.agent.readFacts(); len(facts.Taken) != 0 {
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
		if room, holders, _ := f.agent.ledger.view(); len(holders) != 0 || room.Free.Len() != len(online) {
			t.Errorf("held by %v", holders)
		}
	}
	free()
	f.close()
	f.open()
	f.want(w)
	f.sees("given back", w, func(o fleet.Observed) bool { return o.State == string(farm.VMStopped) && o.Plan == nil })
	free()

	// Its place is booked again, and is another one.
	slurm(slurmJob("8", last.String(), farm.GiB), slurmJob("9", first.String(), farm.GiB))
	w.Job, w.Power = "slurm/9", string(farm.PowerOn)
	f.want(w)
	if o = f.seesState(w, farm.VMRunning); !slices.Equal(o.Plan.VCPUs, []string{first.String()}) || !f.marked(w) {
		t.Errorf("on CPUs %v, and its job on %v; its disk is there: %v", o.Plan.VCPUs, first, f.marked(w))
	}
	if facts := f.agent.readFacts(); len(facts.Taken) != 1 {
		t.Errorf("job 8 is somebody else's: %+v", facts.Taken)
	}
	// Booked anew while it runs: it stays where it is until it starts again.
	slurm(slurmJob("10", last.String(), farm.GiB))
	w.Job = "slurm/10"
	f.want(w)
	f.sees("told", w, func(fleet.Observed) bool { got, _ := f.agent.fleetByID(w.ID).newest(); return got.Job == w.Job })
	w.Boots++
	f.want(w)
	if o = f.seesState(w, farm.VMRunning); !slices.Equal(o.Plan.VCPUs, []string{last.String()}) {
		t.Errorf("on CPUs %v, and its job on %v", o.Plan.VCPUs, last)
	}
	w.Power = string(farm.PowerDeleted)
	f.want(w)
	f.seesState(w, farm.VMGone)
	slurm()
	f.nothingLeft(w)
}

// TestSettleBesideJobs: what the job of a VM's place holds is the VM's; what others' do is not.
func TestSettleBesideJobs(t *testing.T) {
	jobs := []farm.Allotment{slurmJob("7", "0-3", 8*farm.GiB), slurmJob("8", "4-31", farm.GiB)}
	l := confinedLedger(&jobs)
	take := func(n int) choice {
		return func(room numa.Room, own farm.CPUSet) (farm.Plan, error) {
			r := request(n, "0-31")
			if !own.Empty() {
				r.Allowed = own
			}
			return numa.Plan(room, r)
		}
	}
	if _, err := l.settle("a", "a", "", part{}, take(1)); !farm.IsCode(err, farm.CodeNoRoom) {
		t.Errorf("jobs have all CPUs: %v", err)
	}
	if err := l.fits("a", "slurm/7", part{}, take(5)); !farm.IsCode(err, farm.CodeTooBig) {
		t.Errorf("its job has 4 CPUs: %v", err)
	}
	plan, err := l.settle("a", "a", "slurm/7", part{}, take(4))
	if err != nil || !plan.CPUs().Equal(farm.NewCPUSet(0, 1, 2, 3)) {
		t.Errorf("%v, %v", plan.CPUs(), err)
	}
	if _, _, others := l.others(nil); len(others) != 1 || others[0].Extra.Has(0) {
		t.Errorf("%+v", others)
	}
	// the server does not know of it: all that it has is somebody else's
	if _, _, others := l.others(map[string]bool{"a": true}); len(others) != 3 {
		t.Errorf("%+v", others)
	}
}
