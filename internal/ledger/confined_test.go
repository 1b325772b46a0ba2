package ledger

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// confinedLedger is a ledger of a host on which Slurm runs these jobs.
func confinedLedger(jobs *[]farm.Allotment) *Ledger {
	return New(topologytest.CERN2650v2(), numa.Reserve{},
		Host{Jobs: func(string) []farm.Allotment { return *jobs }})
}

func slurmJob(id, cpus string, memory farm.Bytes) farm.Allotment {
	set, _ := farm.ParseCPUSet(cpus)
	return farm.Allotment{System: farm.Slurm, Job: id, CPUs: set, Memory: memory}
}

func TestConfinedJobsKeepVMsAway(t *testing.T) {
	jobs := []farm.Allotment{slurmJob("7", "0-29", 8*farm.GiB), slurmJob("8", "", 0)}
	l := confinedLedger(&jobs)
	_, err := l.Claim(t.Context(), "a", "a", request(4, "0-31"), true, quiet)
	if !farm.IsKind(err, farm.NoCapacity) || !strings.Contains(err.Error(), "slurm/7 on the host holds CPUs 0-29 and 8") ||
		strings.Contains(err.Error(), "slurm/8") {
		t.Errorf("%v", err)
	}
	plan, err := l.Claim(t.Context(), "a", "a", request(2, "0-31"), true, quiet)
	if err != nil || !plan.CPUs().Equal(farm.NewCPUSet(30, 31)) {
		t.Errorf("%v %v", plan.CPUs(), err)
	}
	room, holders, _ := l.View(0)
	if !room.Free.Empty() || holders[3] != "slurm/7" || holders[30] != "a" {
		t.Errorf("free are %v, held by %v", room.Free, holders)
	}
	l.Release("a")
	jobs = []farm.Allotment{slurmJob("7", "", 1*farm.TiB)}
	if _, err := l.Claim(t.Context(), "b", "b", request(1, "0-31"), true, quiet); !farm.IsKind(err, farm.NoCapacity) {
		t.Errorf("all memory is a job's on the host: %v", err)
	}
}

// TestConfinedJobsOfOneSystem: Slurm has counted, and knows which of its jobs share CPUs.
func TestConfinedJobsOfOneSystem(t *testing.T) {
	jobs := []farm.Allotment{slurmJob("7", "0-3", farm.TiB), slurmJob("9", "0-1", 2*farm.GiB)}
	l := confinedLedger(&jobs)
	l.SetBatchJob("vm", "slurm/9")
	plan, err := l.Claim(t.Context(), "vm", "vm", request(2, "0-1"), true, quiet)
	if err != nil || !plan.CPUs().Equal(farm.NewCPUSet(0, 1)) {
		t.Fatalf("%v %v", plan.CPUs(), err)
	}
	// What its job has and its VM does not take is nobody else's; its memory counts once, as the VM's.
	jobs = []farm.Allotment{slurmJob("9", "0-5", farm.TiB)}
	room, holders, _ := l.View(0)
	if room.Free.Has(5) || holders[5] != "slurm/9" || holders[0] != "vm" {
		t.Errorf("free are %v, held by %v", room.Free, holders)
	}
	if _, err := l.Claim(t.Context(), "b", "b", request(1, "0-31"), true, quiet); err != nil {
		t.Errorf("memory counts twice: %v", err)
	}
	// A job that Slurm does not confine must not be put on CPUs of one that it does.
	jobs = []farm.Allotment{slurmJob("7", "0-31", 0)}
	l.SetBatchJob("loose", "slurm/10")
	if _, err := l.Claim(t.Context(), "loose", "loose", request(1, "0-31"), true, quiet); !farm.IsKind(err,
		farm.NoCapacity) {
		t.Errorf("%v", err)
	}
	// What was claimed for a job as well counts once.
	jobs = []farm.Allotment{slurmJob("7", "0-3", 40*farm.GiB)}
	l = confinedLedger(&jobs)
	l.ClaimMetal("slurm/7", farm.NewCPUSet(0, 1, 2, 3), 0, 40*farm.GiB)
	if _, err := l.Claim(t.Context(), "vm", "vm",
		numa.Request{VCPUs: 1, Memory: 15 * farm.GiB, Allowed: farm.NewCPUSet(8, 9)}, true, quiet); err != nil {
		t.Errorf("memory counts twice: %v", err)
	}
}

func TestConfinedJobsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := []farm.Allotment{slurmJob("7", "0-31", 0)}
		l, done := confinedLedger(&jobs), make(chan string, 1)
		claimed(l, t.Context(), "waits", request(1, "0-31"), done)
		l.ServeWaiting()
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal(<-done)
		}
		jobs = nil
		l.ServeWaiting()
		if got := <-done; got != "waits" {
			t.Error(got)
		}
	})
}
