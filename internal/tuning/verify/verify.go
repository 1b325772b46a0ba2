package verify

import (
	"cmp"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// Kind sorts problems by what is wrong.
type Kind string

// What can be wrong with where VMs run.
const (
	// more vCPUs than CPUs they may run on, while others idle; or two on a CPU that one was promised
	Crowded    Kind = "crowded-cpus"
	Stray      Kind = "stray-vcpu"       // the kernel lets a vCPU run elsewhere than planned or pinned
	Differs    Kind = "plan-differs"     // libvirt, or the memory's binding, is not what was planned
	Offline    Kind = "offline-cpu"      // pinned to a CPU that is offline
	Isolated   Kind = "isolated-cpu"     // on CPUs that the kernel's scheduler does not balance
	Cpuset     Kind = "cpuset"           // the cgroup does not allow the pin
	Neighbour  Kind = "neighbour"        // another VM's vCPUs may run on a CPU that one vCPU has for itself
	Emulator   Kind = "emulator-on-vcpu" // QEMU's own threads may run on a CPU that one vCPU has for itself
	SharedCore Kind = "shared-core"      // vCPUs of two VMs on the SMT siblings of one core
	RemoteMem  Kind = "remote-memory"    // memory lies on a node where none of the VM's vCPUs run
	CellApart  Kind = "cell-apart"       // a guest cell's vCPUs are not on the node of its memory
	Unknown    Kind = "unproven"         // the kernel does not tell which threads are vCPUs, or they are not to be seen
)

// Problem is one place where VMs do not run as they should.
type Problem struct {
	Kind     Kind
	Severity tuning.Severity // advice does not keep a VM from being proven
	VM       string
	Others   []string    // VMs that it is about, too
	CPUs     farm.CPUSet // it is about these; may be empty
	Message  string      // a sentence without a full stop
	Fix      string      // what to do
	Source   tuning.Source
}

// Verdict is the sum of what is known of one VM.
type Verdict string

// Verdicts, from the best to the worst.
const (
	Proven   Verdict = "proven"   // plan, libvirt and kernel agree, and nobody is in the way
	Floating Verdict = "floating" // nothing is pinned, and nothing is in the way
	Unproven Verdict = "unproven" // nobody says where it should run, or the kernel does not tell where it does
	Bad      Verdict = "problem"
	Broken   Verdict = "fault"
)

// VM is the proof for one VM.
type VM struct {
	Name, UUID string
	PID        int
	Ours       bool
	Verdict    Verdict
	Lines      []Line
	Memory     farm.NodeMemory
}

// Line compares where one thread should run with where it may. Sets are empty where a source says nothing.
type Line struct {
	Thread                   string // "vCPU 0", "emulator", "I/O thread 1"
	Planned, Libvirt, Kernel farm.CPUSet
	LastCPU                  int // where it ran last; -1 when that is not known
}

// Report is what Verify found.
type Report struct {
	VMs      []VM      // in order of names
	Problems []Problem // worst first
}

// Worst is the highest severity of all problems; 0 without any.
func (r Report) Worst() tuning.Severity {
	var worst tuning.Severity
	for _, p := range r.Problems {
		worst = max(worst, p.Severity)
	}
	return worst
}

// Verify compares what was planned with what libvirt says and with what the kernel does, for each of procs. Plans are
// by the UUIDs of VMs; a VM without one is judged by libvirt's word, and one that libvirt does not know by the kernel's
// alone. A process without threads stands for a VM that runs where nobody sees it, and is never proven.
func Verify(h farm.HostFacts, procs []farm.Process, plans map[string]farm.Plan) Report {
	host := newHost(h, procs, plans)
	var problems []Problem
	for _, m := range host.machines {
		problems = append(problems, host.ownProblems(m)...)
		problems = append(problems, host.memoryProblems(m)...)
	}
	problems = append(problems, host.crowds()...)
	problems = append(problems, host.intruders()...)
	problems = append(problems, host.sharedCores()...)
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(int(b.Severity)-int(a.Severity), cmp.Compare(a.VM, b.VM))
	})
	report := Report{Problems: problems}
	for _, m := range host.machines {
		report.VMs = append(report.VMs, VM{Name: m.name, UUID: m.proc.UUID, PID: m.proc.PID, Ours: m.proc.Ours,
			Verdict: m.verdict(host, problems), Lines: m.lines(), Memory: m.proc.Memory})
	}
	return report
}

// verdict is the worst that problems say of the machine.
func (m *machine) verdict(h *host, problems []Problem) Verdict {
	var worst tuning.Severity
	for _, p := range problems {
		if p.VM == m.name || slices.Contains(p.Others, m.name) {
			worst = max(worst, p.Severity)
		}
	}
	switch {
	case m.unseen:
		return Unproven
	case worst == tuning.Fault:
		return Broken
	case worst == tuning.Warning:
		return Bad
	case m.unready, m.unnamed, m.plan == nil && (m.domain == nil || m.domain.Ours):
		return Unproven
	case !slices.ContainsFunc(m.vcpus, func(v vcpu) bool { return !v.wanted.Empty() }):
		return Floating
	case len(h.nodes) > 1 && m.proc.Memory.Resident == nil: // the kernel tells root only
		return Unproven
	}
	return Proven
}
