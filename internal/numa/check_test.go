package numa_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

func TestCheck(t *testing.T) {
	set := farm.NewCPUSet
	good := farm.Plan{
		VCPUs: []farm.CPUSet{set(2), set(18)}, Emulator: set(0), IOThread: set(0),
		Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2},
		Cells: []farm.GuestCell{{VCPUs: set(0, 1), Memory: farm.GiB, Node: 1}},
	}
	beside := farm.Plan{VCPUs: []farm.CPUSet{set(3), set(19)}, Emulator: set(0)}
	for name, c := range map[string]struct {
		change func(p *farm.Plan, o *numa.Observed)
		want   []string
	}{
		"as planned":        {func(p *farm.Plan, o *numa.Observed) {}, nil},
		"emulator narrower": {func(p *farm.Plan, o *numa.Observed) { p.Emulator = set(0, 1) }, nil},
		"two CPUs for one": {func(p *farm.Plan, o *numa.Observed) { o.VCPUs[1] = set(18, 20) },
			[]string{`vcpu: vCPU 1 may run on CPUs "18,20", planned on 18`}},
		"unknown affinity": {func(p *farm.Plan, o *numa.Observed) { o.VCPUs[1] = set() },
			[]string{`vcpu: vCPU 1 may run on CPUs "", planned on 18`}},
		"a thread is missing": {func(p *farm.Plan, o *numa.Observed) { o.VCPUs = o.VCPUs[:1] },
			[]string{"vcpu: the VM has 1 vCPU threads, planned are 2"}},
		"emulator wanders": {func(p *farm.Plan, o *numa.Observed) { o.Emulator = set(0, 5) },
			[]string{"emulator: emulator threads may run on CPUs 5, planned on 0"}},
		"emulator unknown": {func(p *farm.Plan, o *numa.Observed) { o.Emulator = set() },
			[]string{"emulator: nothing is known of the emulator threads, planned on CPUs 0"}},
		"not bound": {func(p *farm.Plan, o *numa.Observed) { o.Nodes = nil },
			[]string{"memory: memory is not bound, planned on nodes 1"}},
		"other node": {func(p *farm.Plan, o *numa.Observed) { o.Nodes = []int{1, 0} },
			[]string{"memory: memory is bound to nodes 0-1, planned on 1"}},
		"on the neighbour, in fact": {func(p *farm.Plan, o *numa.Observed) { o.VCPUs[0] = set(3) },
			[]string{`vcpu: vCPU 0 may run on CPUs "3", planned on 2`,
				"overlap: vCPU 0 may run on CPU 3, which vCPU 0 of neighbour 0 holds"}},
		"on the neighbour, by plan": {func(p *farm.Plan,
			o *numa.Observed) {
			p.VCPUs[1] = set(19)
			o.VCPUs[1] = set(19)
		},
			[]string{"overlap: vCPU 1 may run on CPU 19, which vCPU 1 of neighbour 0 holds"}},
		"emulator on the neighbour": {func(p *farm.Plan, o *numa.Observed) { p.Emulator = set(0, 3) },
			[]string{"overlap: an emulator thread may run on CPU 3, which vCPU 0 of neighbour 0 holds"}},
		"twice on one": {func(p *farm.Plan, o *numa.Observed) { p.VCPUs[1] = set(2); o.VCPUs[1] = set(2) },
			[]string{"overlap: vCPU 0 and vCPU 1 are both planned on CPU 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := good
			p.VCPUs = slices.Clone(good.VCPUs)
			o := numa.Observed{VCPUs: slices.Clone(good.VCPUs), Emulator: set(0), Nodes: []int{1}}
			c.change(&p, &o)
			var got []string
			for _, problem := range numa.Check(p, o, []farm.Plan{beside}) {
				got = append(got, string(problem.Kind)+": "+problem.Message)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// VMs that float share their pool with each other, and nothing else with anybody.
func TestCheckSharing(t *testing.T) {
	set := farm.NewCPUSet
	pool := set(0, 1, 16, 17)
	floats := farm.Plan{VCPUs: []farm.CPUSet{pool, pool}, Floating: set(0, 1), Emulator: pool,
		Cells: []farm.GuestCell{{VCPUs: set(0, 1), Memory: farm.GiB}}}
	mixed := farm.Plan{VCPUs: []farm.CPUSet{set(4), pool}, Floating: set(1), Emulator: pool,
		Cells: []farm.GuestCell{{VCPUs: set(0, 1), Memory: farm.GiB}}}
	isolated := farm.Plan{VCPUs: []farm.CPUSet{set(5)}, Emulator: set(6), Extra: set(6, 21, 22),
		Cells: []farm.GuestCell{{VCPUs: set(0), Memory: farm.GiB}}}
	with := func(p farm.Plan, change func(p *farm.Plan)) farm.Plan {
		p.VCPUs = slices.Clone(p.VCPUs)
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		plan, beside farm.Plan
		want         []string
	}{
		"two that float":          {floats, floats, nil},
		"mixed beside one":        {mixed, floats, nil},
		"isolated beside a mixed": {isolated, mixed, nil},
		"pinned in the pool": {with(mixed, func(p *farm.Plan) { p.VCPUs[0] = set(16) }), floats, []string{
			"overlap: vCPU 0 may run on CPU 16, which vCPU 0 of neighbour 0 holds",
			"overlap: vCPU 0 and vCPU 1 are both planned on CPU 16"}},
		"floats over a pinned one": {with(floats, func(p *farm.Plan) { p.VCPUs[1] = set(0, 4) }), mixed, []string{
			"overlap: vCPU 1 may run on CPU 4, which vCPU 0 of neighbour 0 holds"}},
		"pinned on an idle sibling": {with(mixed, func(p *farm.Plan) { p.VCPUs[0] = set(21) }), isolated, []string{
			"overlap: vCPU 0 may run on CPU 21, which the emulator or an idle sibling of neighbour 0 holds"}},
		"idle siblings of two": {with(isolated, func(p *farm.Plan) {
			p.VCPUs[0], p.Emulator, p.Extra = set(20), set(23),
				set(4, 23)
		}), mixed, []string{
			"overlap: CPU 4 is held idle or for the emulator, and vCPU 0 of neighbour 0 holds it too"}},
		"emulator on an idle sibling": {with(floats, func(p *farm.Plan) { p.Emulator = set(22) }), isolated, []string{
			"overlap: an emulator thread may run on CPU 22, which the emulator or an idle sibling of neighbour 0 " +
				"holds"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			seen := numa.Observed{VCPUs: c.plan.VCPUs, Emulator: c.plan.Emulator, Nodes: []int{0}}
			for _, p := range numa.Check(c.plan, seen, []farm.Plan{c.beside}) {
				got = append(got, string(p.Kind)+": "+p.Message)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
