package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// host is everything that the checks look at.
type host struct {
	farm.HostFacts
	machines []*machine
	isolated farm.CPUSet         // CPUs that the kernel's scheduler does not balance
	alone    map[int][]vcpu      // by CPU: the vCPUs that may run there and nowhere else
	nodeOf   map[int]int         // by CPU
	nodes    map[int]farm.CPUSet // CPUs by node
}

// machine is one VM, from all three sides.
type machine struct {
	proc     farm.Process
	domain   *farm.Domain // nil when libvirt does not know it
	plan     *farm.Plan   // nil when it is not ours
	name     string
	unnamed  bool // QEMU does not name its threads, and which of them are vCPUs is a guess
	unseen   bool // its threads are not to be seen
	unready  bool // it starts or ends: its threads are not all there, nor where they will be, and are left out
	vcpus    []vcpu
	emulator []farm.Thread
	io       []ioThread
}

// vcpu is one vCPU of a machine.
type vcpu struct {
	machine                  *machine
	label                    string
	thread                   farm.Thread
	planned, libvirt, wanted farm.CPUSet // wanted is planned, or else libvirt's; empty when it is not pinned
	shared                   bool        // planned to share its CPUs with other VMs
}

type ioThread struct {
	number           int
	thread           farm.Thread
	planned, libvirt farm.CPUSet
}

// wanted is where the thread should run; empty when nobody says.
func (t ioThread) wanted() farm.CPUSet {
	if t.planned.Empty() {
		return t.libvirt
	}
	return t.planned
}

func newHost(h farm.HostFacts, procs []farm.Process, plans map[string]farm.Plan) *host {
	out := &host{HostFacts: h, isolated: h.Isolated, alone: map[int][]vcpu{}, nodeOf: map[int]int{},
		nodes: map[int]farm.CPUSet{}}
	for _, p := range h.Partitions {
		if p.Kind == "isolated" {
			out.isolated = out.isolated.Or(p.CPUs)
		}
	}
	for _, n := range h.Topology.Nodes {
		out.nodes[n.ID] = n.CPUs
		for _, cpu := range n.CPUs.List() {
			out.nodeOf[cpu] = n.ID
		}
	}
	for _, p := range procs {
		m := newMachine(p, h.Domains, plans)
		out.machines = append(out.machines, m)
		for _, v := range m.vcpus {
			if v.thread.Allowed.Len() == 1 && h.Topology.Online.Len() > 1 && !v.shared {
				cpu := v.thread.Allowed.List()[0]
				out.alone[cpu] = append(out.alone[cpu], v)
			}
		}
	}
	slices.SortStableFunc(out.machines, func(a, b *machine) int {
		return cmp.Or(cmp.Compare(a.name, b.name), a.proc.PID-b.proc.PID)
	})
	tellApart(out.machines)
	return out
}

// tellApart gives VMs of one name, as users' own libvirts and QEMUs without one may have, names of their own. They are
// in order.
func tellApart(machines []*machine) {
	for i := 0; i < len(machines); {
		j := i + 1
		for j < len(machines) && machines[j].name == machines[i].name {
			j++
		}
		if same := machines[i:j]; len(same) > 1 {
			for _, m := range same {
				m.name = fmt.Sprintf("%s (process %d)", m.proc.Name, m.proc.PID)
			}
		}
		i = j
	}
}

func newMachine(p farm.Process, domains []farm.Domain, plans map[string]farm.Plan) *machine {
	m := &machine{proc: p, name: p.Name}
	if m.name == "" {
		m.name = fmt.Sprintf("process %d", p.PID)
	}
	if i := slices.IndexFunc(domains, func(d farm.Domain) bool { return isDomain(p, d) }); i >= 0 {
		m.domain = &domains[i]
	}
	if plan, ok := plans[p.UUID]; ok && p.UUID != "" {
		m.plan = &plan
	}
	threads := p.VCPUs()
	if m.unseen = len(p.Threads) == 0 && !p.Starting; m.unseen {
		return m
	}
	if m.unready = p.Starting || len(threads) == 0 && p.Named; m.unready {
		return m
	}
	if m.unnamed = len(threads) == 0; m.unnamed {
		threads = guessVCPUs(p)
	}
	for _, t := range threads {
		m.vcpus = append(m.vcpus, m.vcpu(t))
	}
	program := ""
	for _, t := range p.Threads {
		if t.ID == p.PID {
			program = t.Name
		}
	}
	for _, t := range p.Threads {
		if n, ok := ioNumber(t.Name); ok {
			m.io = append(m.io, m.ioThread(n, t))
		} else if t.ID == p.PID || t.VCPU == farm.NoVCPU && t.Name != program && !passing(t.Name) {
			m.emulator = append(m.emulator, t) // threads that are called as the program is may be workers
		}
	}
	return m
}

func isDomain(p farm.Process, d farm.Domain) bool {
	if p.UUID != "" && d.UUID != "" {
		return strings.EqualFold(p.UUID, d.UUID)
	}
	return p.Name != "" && p.Name == d.Name
}

// guessVCPUs is for a QEMU that does not name its threads (debug-threads=off, its own default): behind the main thread
// and that of call_rcu come the vCPUs, unless somebody gave it I/O threads.
func guessVCPUs(p farm.Process) []farm.Thread {
	others := slices.DeleteFunc(slices.Clone(p.Threads), func(t farm.Thread) bool { return t.ID == p.PID })
	if len(others) < 2 {
		return nil
	}
	return others[1:min(1+max(p.CPUs, 1), len(others))]
}

func (m *machine) vcpu(t farm.Thread) vcpu {
	v := vcpu{machine: m, thread: t, label: fmt.Sprintf("vCPU %d", t.VCPU)}
	if t.VCPU == farm.NoVCPU {
		v.label = fmt.Sprintf("thread %d", t.ID)
		return v
	}
	if m.domain != nil && !m.domain.VCPUAuto { // numad may move what it has placed
		v.libvirt = m.domain.VCPUPins[t.VCPU]
	}
	if m.plan != nil && t.VCPU < len(m.plan.VCPUs) {
		v.planned, v.shared = m.plan.VCPUs[t.VCPU], m.plan.Floating.Has(t.VCPU)
	}
	if v.wanted = v.planned; v.wanted.Empty() {
		v.wanted = v.libvirt
	}
	return v
}

func (m *machine) ioThread(number int, t farm.Thread) ioThread {
	io := ioThread{number: number, thread: t}
	if m.domain != nil {
		io.libvirt = m.domain.IOThreadPins[number]
	}
	if m.plan != nil && number == 1 {
		io.planned = m.plan.IOThread
	}
	return io
}

// ioNumber reads libvirt's names of I/O threads: "IO iothread1".
func ioNumber(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, "IO iothread")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}

// passing reports whether a thread says nothing of how QEMU is pinned: workers that inherit the CPUs of whoever made
// them, thread contexts that touch memory before the guest runs, and what the kernel adds to the process.
func passing(name string) bool {
	return slices.ContainsFunc([]string{"worker", "TC ", "vhost-", "kvm-", "iou-", "io_worker", "migration", "multifd"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// emulatorAllowed is where QEMU's own threads may run.
func (m *machine) emulatorAllowed() farm.CPUSet {
	var set farm.CPUSet
	for _, t := range m.emulator {
		set = set.Or(t.Allowed)
	}
	return set
}

// emulatorWanted is where they should; empty when nobody says.
func (m *machine) emulatorWanted() farm.CPUSet {
	switch {
	case m.plan != nil:
		return m.plan.Emulator
	case m.domain != nil && !m.domain.VCPUAuto:
		return m.domain.EmulatorPin
	}
	return farm.CPUSet{}
}

// allowed is where the machine's vCPUs may run.
func (m *machine) allowed() farm.CPUSet {
	var set farm.CPUSet
	for _, v := range m.vcpus {
		set = set.Or(v.thread.Allowed)
	}
	return set
}

func (m *machine) lines() []Line {
	var lines []Line
	vcpus := m.vcpus
	for i := 0; m.unseen && i < m.proc.CPUs; i++ {
		vcpus = append(vcpus, m.vcpu(farm.Thread{VCPU: i, LastCPU: -1}))
	}
	for _, v := range vcpus {
		lines = append(lines, Line{v.label, v.planned, v.libvirt, v.thread.Allowed, v.thread.LastCPU})
	}
	emulator := Line{Thread: "emulator", Kernel: m.emulatorAllowed(), LastCPU: -1}
	if m.plan != nil {
		emulator.Planned = m.plan.Emulator
	}
	if m.domain != nil && !m.domain.VCPUAuto {
		emulator.Libvirt = m.domain.EmulatorPin
	}
	lines = append(lines, emulator)
	for _, io := range m.io {
		lines = append(lines, Line{fmt.Sprintf("I/O thread %d", io.number), io.planned, io.libvirt, io.thread.Allowed,
			io.thread.LastCPU})
	}
	return lines
}
