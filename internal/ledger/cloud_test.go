package ledger

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// TestClaimCloudBesideJobs: what the job of a VM's place holds is the VM's; what others' do is not.
func TestClaimCloudBesideJobs(t *testing.T) {
	jobs := []farm.Allotment{slurmJob("7", "0-3", 8*farm.GiB), slurmJob("8", "4-31", farm.GiB)}
	l := confinedLedger(&jobs)
	take := func(n int) Planner {
		return func(room numa.Room, own farm.CPUSet) (farm.Plan, error) {
			r := request(n, "0-31")
			if !own.Empty() {
				r.Allowed = own
			}
			return numa.Plan(room, r)
		}
	}
	if _, err := l.ClaimCloud("a", "a", "", Charge{}, take(1)); !farm.IsCode(err, farm.CodeNoRoom) {
		t.Errorf("jobs have all CPUs: %v", err)
	}
	if err := l.CheckCloud("a", "slurm/7", Charge{}, take(5)); !farm.IsCode(err, farm.CodeTooBig) {
		t.Errorf("its job has 4 CPUs: %v", err)
	}
	plan, err := l.ClaimCloud("a", "a", "slurm/7", Charge{}, take(4))
	if err != nil || !plan.CPUs().Equal(farm.NewCPUSet(0, 1, 2, 3)) {
		t.Errorf("%v, %v", plan.CPUs(), err)
	}
	if _, _, others := l.Taken(nil); len(others) != 1 || others[0].Extra.Has(0) {
		t.Errorf("%+v", others)
	}
	// the server does not know of it: all that it has is somebody else's
	if _, _, others := l.Taken(map[string]bool{"a": true}); len(others) != 3 {
		t.Errorf("%+v", others)
	}
}
