package ledger

import (
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// TestPrivateClaims: where VMs are private, a user is told of the own claims and of the own batch job's, of others' how
// much they are, and root all.
func TestPrivateClaims(t *testing.T) {
	private := true
	jobs := []farm.Allotment{slurmJob("7", "2", 0)}
	l := New(topologytest.CERN2650v2(), numa.Reserve{}, Host{Private: func() bool { return private },
		Jobs: func(string) []farm.Allotment { return jobs }})
	claim := func(id string, uid uint32, cpus string) {
		l.SetCharge(id, Charge{Owner: uid})
		if _, err := l.Claim(t.Context(), id, id+" (somebody: x)", request(1, cpus), true, quiet); err != nil {
			t.Fatal(err)
		}
	}
	claim("evas", 1001, "0")
	claim("maxs", 1002, "1")
	l.ClaimMetal("slurm/8", farm.NewCPUSet(3), 1, 0)
	l.AdoptCloud("tenants", "tenants (p/web)", "", Charge{}, farm.Plan{Extra: farm.NewCPUSet(4)})
	all := []string{"evas", "maxs", "slurm/7", "slurm/8", "tenants"}
	for _, c := range []struct {
		what    string
		uid     uint32
		key     string
		private bool
		names   []string
	}{
		{"eva", 1001, "", true, []string{"evas"}},
		{"eva's job", 1001, "slurm/8", true, []string{"evas", "slurm/8"}},
		{"another", 1003, "", true, nil},
		{"root", 0, "", true, all},
		{"another where VMs are not private", 1003, "", false, all},
	} {
		private = c.private
		l.SetCharge("new", Charge{Owner: c.uid})
		l.SetBatchJob("new", c.key)
		_, err := l.Claim(t.Context(), "new", "new", request(1, "0"), true, quiet)
		if !farm.IsKind(err, farm.NoCapacity) {
			t.Fatal(err)
		}
		l.SetCharge("other", Charge{Owner: c.uid})
		_, neighbours := l.Neighbours("other")
		_, holders, _ := l.View(c.uid)
		var held []string
		for _, name := range holders {
			held = append(held, name)
		}
		for _, name := range all {
			want := slices.Contains(c.names, name)
			if strings.Contains(err.Error(), name) != want {
				t.Errorf("%s is told of %s: %v: %v", c.what, name, !want, err)
			}
			if host := strings.HasPrefix(name, "slurm/"); !host &&
				strings.Contains(strings.Join(neighbours, " "), name) != want {
				t.Errorf("%s has %q as neighbours", c.what, neighbours)
			}
			if c.key == "" && strings.Contains(strings.Join(held, " "), name) != want {
				t.Errorf("%s sees %q as holders of CPUs", c.what, held)
			}
		}
		if hidden := len(c.names) < len(all); hidden != strings.Contains(err.Error(), "others hold CPUs") {
			t.Errorf("%s is told: %v", c.what, err)
		}
		l.claims.forget("new")
		l.claims.forget("other")
	}
	private = true
	_, err := l.ClaimCloud("web2", "web2 (p/web2)", "", Charge{}, func(numa.Room, farm.CPUSet) (farm.Plan, error) {
		return farm.Plan{}, &farm.Error{Kind: farm.NoCapacity, Message: "no room"}
	})
	if err == nil || strings.Contains(err.Error(), "evas") || strings.Contains(err.Error(), "slurm/") {
		t.Errorf("the server's VM is told: %v", err)
	}
}
