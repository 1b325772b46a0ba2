package agent

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func slurmJob(id, cpus string, memory farm.Bytes) farm.Allotment {
	set, _ := farm.ParseCPUSet(cpus)
	return farm.Allotment{System: farm.Slurm, Job: id, CPUs: set, Memory: memory}
}

// TestConfinedJobsOwn: a job that started behind the last look at the host is not taken for one that its batch system
// does not confine.
func TestConfinedJobsOwn(t *testing.T) {
	m := &metalJobs{read: new(Agent).readMetal, jobs: []farm.Allotment{slurmJob("7", "0-31", farm.TiB)}, at: time.Now()}
	if jobs := m.running("slurm/7"); len(jobs) != 1 {
		t.Errorf("looked again for a job that is known: %v", jobs)
	}
	if jobs := m.running(""); len(jobs) != 1 {
		t.Errorf("looked again within the moment: %v", jobs)
	}
	if jobs := m.running("slurm/9"); len(jobs) != 0 { // of this machine, no job is ours
		t.Errorf("did not look again for a job that is not known: %v", jobs)
	}
}
