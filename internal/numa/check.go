package numa

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// ProblemKind sorts what Check finds.
type ProblemKind string

// What can be wrong with a VM's pins.
const (
	WrongVCPU     ProblemKind = "vcpu"     // a vCPU may run elsewhere than planned, or its threads are not all there
	WrongEmulator ProblemKind = "emulator" // QEMU's own threads may run outside the plan
	WrongMemory   ProblemKind = "memory"   // memory is bound to other nodes, or not bound
	Overlap       ProblemKind = "overlap"  // two VMs, or two vCPUs, may run on one host thread
)

// Problem is one difference between what was planned and what is.
type Problem struct {
	Kind      ProblemKind
	Message   string // a sentence without a full stop; names vCPUs, CPUs and nodes by number
	Neighbour int    // index of the neighbour that an Overlap is with; -1 when it is with none
}

// Check compares where a VM's threads and memory really may be with its plan, and both with the plans of the VMs beside
// it. No problems means that every pinned vCPU has a host thread to itself. A pinned vCPU that may run anywhere else as
// well is a problem. vCPUs that float share their CPUs with other VMs' vCPUs that float, and with no others.
func Check(plan farm.Plan, seen Observed, neighbours []farm.Plan) []Problem {
	out := checkVCPUs(plan, seen)
	if extra := seen.Emulator.Minus(plan.Emulator); !extra.Empty() {
		out = append(out, problem(WrongEmulator, "emulator threads may run on CPUs %v, planned on %v", extra,
			plan.Emulator))
	} else if seen.Emulator.Empty() {
		out = append(out, problem(WrongEmulator, "nothing is known of the emulator threads, planned on CPUs %v",
			plan.Emulator))
	}
	out = append(out, checkMemory(plan, seen)...)
	for i, n := range neighbours {
		for _, p := range overlaps(plan, seen, n, i) {
			p.Neighbour = i
			out = append(out, p)
		}
	}
	return out
}

func problem(kind ProblemKind, format string, args ...any) Problem {
	return Problem{Kind: kind, Message: fmt.Sprintf(format, args...), Neighbour: -1}
}

func checkVCPUs(plan farm.Plan, seen Observed) []Problem {
	var out []Problem
	if len(seen.VCPUs) != len(plan.VCPUs) {
		out = append(out, problem(WrongVCPU, "the VM has %d vCPU threads, planned are %d", len(seen.VCPUs),
			len(plan.VCPUs)))
	}
	holder := map[int]int{}
	for i, want := range plan.VCPUs {
		if i < len(seen.VCPUs) && !seen.VCPUs[i].Equal(want) {
			out = append(out, problem(WrongVCPU, "vCPU %d may run on CPUs %q, planned on %v", i, seen.VCPUs[i], want))
		}
		for cpu := range want.All() {
			if other, ok := holder[cpu]; ok && (want.Len() == 1 || plan.Floating.Has(i)) &&
				!(plan.Floating.Has(i) && plan.Floating.Has(other)) {
				out = append(out, problem(Overlap, "vCPU %d and vCPU %d are both planned on CPU %d", other, i, cpu))
			}
			holder[cpu] = i
		}
	}
	return out
}

func checkMemory(plan farm.Plan, seen Observed) []Problem {
	var want []int
	for _, c := range plan.Cells {
		want = append(want, c.Node)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	got := slices.Clone(seen.Nodes)
	slices.Sort(got)
	switch got = slices.Compact(got); {
	case len(got) == 0 && len(want) > 0:
		return []Problem{problem(WrongMemory, "memory is not bound, planned on nodes %v", farm.NewCPUSet(want...))}
	case !slices.Equal(got, want):
		return []Problem{problem(WrongMemory, "memory is bound to nodes %v, planned on %v", farm.NewCPUSet(got...),
			farm.NewCPUSet(want...))}
	}
	return nil
}

// overlaps finds the CPUs that both VMs may use, by plan or in fact, or that one may use and the other holds. A
// neighbour's vCPU that is not pinned counts with all it may use.
func overlaps(plan farm.Plan, seen Observed, neighbour farm.Plan, index int) []Problem {
	theirs := holders(neighbour)
	var out []Problem
	report := func(who string, set farm.CPUSet, floats bool) {
		for cpu := range set.All() {
			if h, ok := theirs[cpu]; ok && !(floats && h.floats) {
				out = append(out, problem(Overlap, "%s may run on CPU %d, which %s of neighbour %d holds", who, cpu,
					h.name, index))
			}
		}
	}
	for i := range max(len(plan.VCPUs), len(seen.VCPUs)) {
		var set farm.CPUSet
		if i < len(plan.VCPUs) {
			set = plan.VCPUs[i]
		}
		if i < len(seen.VCPUs) {
			set = set.Or(seen.VCPUs[i])
		}
		report(fmt.Sprintf("vCPU %d", i), set, plan.Floating.Has(i))
	}
	report("an emulator thread", plan.Emulator.Or(seen.Emulator), true)
	for cpu := range plan.Extra.All() {
		if h, ok := theirs[cpu]; ok {
			out = append(out, problem(Overlap,
				"CPU %d is held idle or for the emulator, and %s of neighbour %d holds it too", cpu, h.name, index))
		}
	}
	return out
}

// holder is who may use a CPU.
type holder struct {
	name   string
	floats bool
}

// holders says for each CPU that a VM may use who does: a vCPU that has it alone before one that floats there.
func holders(p farm.Plan) map[int]holder {
	out := map[int]holder{}
	for i, set := range p.VCPUs {
		h := holder{fmt.Sprintf("vCPU %d", i), p.Floating.Has(i)}
		for cpu := range set.All() {
			if _, ok := out[cpu]; !ok || !h.floats {
				out[cpu] = h
			}
		}
	}
	for cpu := range p.Extra.All() {
		out[cpu] = holder{name: "the emulator or an idle sibling"}
	}
	return out
}
