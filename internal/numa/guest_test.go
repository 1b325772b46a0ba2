package numa

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestGuestDiffers(t *testing.T) {
	set := func(text string) farm.CPUSet {
		s, err := farm.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sets := func(texts ...string) (out []farm.CPUSet) {
		for _, text := range texts {
			out = append(out, set(text))
		}
		return out
	}
	plan := farm.Plan{VCPUs: farm.EachCPU([]int{0, 4, 1, 5, 2, 6, 3, 7}),
		Guest: farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 2},
		Cells: []farm.GuestCell{{VCPUs: set("0-3"), Memory: farm.GiB}, {VCPUs: set("4-7"), Memory: farm.GiB, Node: 1}}}
	small := farm.Plan{VCPUs: farm.EachCPU([]int{3}), Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 1},
		Cells: []farm.GuestCell{{VCPUs: set("0"), Memory: 128 * farm.MiB}}}
	right := func() farm.GuestView {
		return farm.GuestView{Sockets: sets("0-3", "4-7"), Cores: sets("0-1", "2-3", "4-5", "6-7"),
			Nodes: []farm.GuestNode{{CPUs: set("0-3"), Memory: 960 * farm.MiB},
				{CPUs: set("4-7"), Memory: 1000 * farm.MiB}}}
	}
	for name, c := range map[string]struct {
		plan   farm.Plan
		change func(v *farm.GuestView)
		want   []string
	}{
		"as planned":       {plan, func(v *farm.GuestView) {}, nil},
		"nothing told":     {small, func(v *farm.GuestView) { *v = farm.GuestView{} }, nil},
		"cores not told":   {plan, func(v *farm.GuestView) { v.Cores = nil }, nil},
		"sockets not told": {plan, func(v *farm.GuestView) { v.Sockets = nil }, nil},
		"AMD without topoext": {plan,
			func(v *farm.GuestView) { v.Cores = sets("0", "1", "2", "3", "4", "5", "6", "7") },
			[]string{"the guest sees 2 sockets × 4 cores × 1 threads, planned are 2 sockets × 2 cores × 2 threads"}},
		"another order": {plan, func(v *farm.GuestView) {
			v.Cores = sets("0,4", "1,5", "2,6", "3,7")
			v.Sockets = sets("0-1,4-5", "2-3,6-7")
		},
			[]string{"the guest's CPUs are spread over its 2 sockets × 2 cores × 2 threads in another order than " +
				"planned"}},
		"fewer CPUs": {plan, func(v *farm.GuestView) { v.Cores = sets("0-1", "2-3"); v.Nodes[1].CPUs = set("") },
			[]string{"the guest uses 4 CPUs, planned are 8", `the guest sees its CPUs "" on node 1, planned are 4-7`}},
		"no nodes": {plan, func(v *farm.GuestView) { v.Nodes = nil },
			[]string{"the guest sees 0 NUMA nodes, planned are 2"}},
		"one node": {plan, func(v *farm.GuestView) { v.Nodes = v.Nodes[:1] },
			[]string{"the guest sees 1 NUMA nodes, planned are 2"}},
		"swapped": {plan, func(v *farm.GuestView) { slices.Reverse(v.Nodes) },
			[]string{`the guest sees its CPUs "4-7" on node 0, planned are 0-3`,
				`the guest sees its CPUs "0-3" on node 1, planned are 4-7`}},
		"too little": {plan, func(v *farm.GuestView) { v.Nodes[0].Memory = 700 * farm.MiB },
			[]string{"the guest sees 700M on node 0, planned are 1G"}},
		"too much": {plan, func(v *farm.GuestView) { v.Nodes[1].Memory = farm.GiB + 1 },
			[]string{"the guest sees 1G on node 1, planned are 1G"}},
		"a small machine": {small, func(v *farm.GuestView) {
			*v = farm.GuestView{Nodes: []farm.GuestNode{{CPUs: set("0"), Memory: 70 * farm.MiB}}}
		}, nil},
	} {
		v := right()
		c.change(&v)
		if got := GuestDiffers(c.plan, v); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// FuzzGuestDiffers: a hostile guest's report brings nothing down.
func FuzzGuestDiffers(f *testing.F) {
	f.Add("0-3", "0", "1", uint64(1))
	f.Fuzz(func(t *testing.T, a, b, c string, memory uint64) {
		var sets []farm.CPUSet
		for _, text := range []string{a, b, c} {
			s, err := farm.ParseCPUSet(text)
			if err != nil {
				return
			}
			sets = append(sets, s)
		}
		v := farm.GuestView{Sockets: sets, Cores: sets,
			Nodes: []farm.GuestNode{{CPUs: sets[0], Memory: farm.Bytes(memory)}}}
		plan := farm.Plan{VCPUs: farm.EachCPU([]int{0, 1}), Guest: farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2},
			Cells: []farm.GuestCell{{Memory: farm.GiB}}}
		GuestDiffers(plan, v)
	})
}
