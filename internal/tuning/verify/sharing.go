package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// crowd is vCPUs that may run nowhere but on fewer CPUs than they are.
type crowd struct {
	cpus  farm.CPUSet
	vcpus int
	names []string // VMs, sorted
	alone bool     // they have one CPU, which none of them shares knowingly
}

// crowds finds vCPUs that must share CPUs while others idle, whatever the kernel's scheduler does: sets of CPUs, each
// some vCPU's, that hold more vCPUs than CPUs. Pools that VMs are meant to share are none, nor is a host that has no
// CPU to spare.
func (h *host) crowds() []Problem {
	var all []vcpu
	sets := map[string]farm.CPUSet{}
	for _, m := range h.machines {
		for _, v := range m.vcpus {
			if set := v.thread.Allowed.And(h.Topology.Online); !set.Empty() {
				all = append(all, v)
				sets[set.String()] = set
			}
		}
	}
	bySize := make([]farm.CPUSet, 0, len(sets))
	for _, set := range sets {
		bySize = append(bySize, set)
	}
	slices.SortFunc(bySize, func(a, b farm.CPUSet) int {
		return cmp.Or(a.Len()-b.Len(), cmp.Compare(first(a), first(b)), cmp.Compare(a.String(), b.String()))
	})
	pool := h.forVMs(all)
	var found []crowd
	for _, set := range bySize {
		inside := func(c crowd) bool { return c.cpus.Minus(set).Empty() }
		if slices.ContainsFunc(found, inside) {
			continue // a smaller set says it better
		}
		if c, ok := h.crowdOn(set, pool, all); ok {
			found = append(found, c)
		}
	}
	var out []Problem
	for _, c := range merge(found) {
		out = append(out, h.crowdProblem(c, pool, all))
	}
	return out
}

func first(s farm.CPUSet) int {
	for _, cpu := range s.List() {
		return cpu
	}
	return -1
}

// forVMs is the CPUs that vCPUs are meant to use: what is online, allowed by the control groups, and not kept for
// QEMU's own threads.
func (h *host) forVMs(all []vcpu) farm.CPUSet {
	pool, used := h.Topology.Online, farm.CPUSet{}
	for _, v := range all {
		if !v.thread.Allowed.Equal(h.Topology.Online) {
			used = used.Or(v.thread.Allowed)
		}
	}
	var groups, service farm.CPUSet
	for _, m := range h.machines {
		if m.proc.Cpuset.Empty() {
			groups = h.Topology.Online
		}
		groups = groups.Or(m.proc.Cpuset)
		service = service.Or(m.emulatorWanted())
	}
	return pool.And(groups).Minus(service.Minus(used))
}

func (h *host) crowdOn(set, pool farm.CPUSet, all []vcpu) (crowd, bool) {
	c := crowd{cpus: set, alone: set.Len() == 1}
	planned := true
	for _, v := range all {
		if v.thread.Allowed.And(h.Topology.Online).Minus(set).Empty() {
			c.vcpus++
			c.names = append(c.names, v.machine.name)
			planned = planned && v.shared
		}
	}
	if c.vcpus <= set.Len() || planned {
		return c, false
	}
	slices.Sort(c.names)
	c.names = slices.Compact(c.names)
	// A few CPUs that no VM uses are kept for the host; a quarter of all is forgotten.
	const many = 4
	return c, c.alone || many*(pool.Minus(set).Len()-(len(all)-c.vcpus)) >= h.Topology.Online.Len()
}

// merge joins the crowds of the same VMs: two VMs pinned alike, vCPU by vCPU, are one problem.
func merge(found []crowd) []crowd {
	var out []crowd
	for _, c := range found {
		i := slices.IndexFunc(out, func(o crowd) bool { return o.alone && c.alone && slices.Equal(o.names, c.names) })
		if i < 0 {
			out = append(out, c)
			continue
		}
		out[i].cpus, out[i].vcpus = out[i].cpus.Or(c.cpus), out[i].vcpus+c.vcpus
	}
	return out
}

func (h *host) crowdProblem(c crowd, pool farm.CPUSet, all []vcpu) Problem {
	p := Problem{Kind: Crowded, Severity: tuning.Warning, VM: c.names[0], Others: c.names[1:], CPUs: c.cpus,
		Source: doublePinning, Fix: "pin each vCPU to a CPU of its own, or take the pins off"}
	p.Message = fmt.Sprintf("%d vCPUs of %s have only %s to run on", c.vcpus, strings.Join(c.names, " and "),
		cpus(c.cpus))
	outside, used := 0, farm.CPUSet{}
	for _, v := range all {
		set := v.thread.Allowed.And(h.Topology.Online)
		if set.Minus(c.cpus).Empty() {
			continue
		}
		outside++
		used = used.Or(set)
	}
	// These CPUs idle even when all vCPUs of the host are busy, each of the others on a CPU of its own.
	idle := pool.Minus(c.cpus).Len() - outside
	if idle <= 0 {
		return p
	}
	p.Severity = tuning.Fault
	if free := pool.Minus(c.cpus).Minus(used); free.Len() >= idle {
		p.Message += fmt.Sprintf(", while %s idle", cpus(free))
	} else {
		p.Message += fmt.Sprintf(", while at least %d others idle", idle)
	}
	return p
}

// intruders finds threads of one VM that may run on a CPU that a vCPU of another has for itself, and QEMU's own threads
// on their own VM's.
func (h *host) intruders() []Problem {
	var out []Problem
	for _, m := range h.machines {
		who, threads := 0, farm.CPUSet{}
		for _, v := range m.vcpus {
			if on := h.othersAlone(v.thread.Allowed, m); v.thread.Allowed.Len() > 1 && !on.Empty() {
				who++
				threads = threads.Or(on)
			}
		}
		emulator := h.othersAlone(m.emulatorAllowed(), m)
		for _, io := range m.io {
			emulator = emulator.Or(h.othersAlone(io.thread.Allowed, m))
		}
		const neighbourFix = "pin this VM, or give all VMs that are not pinned a pool of CPUs of their own"
		switch {
		case who > 0:
			out = append(out, h.intrusion(m, Neighbour, fmt.Sprintf("%d of its %d vCPUs", who, len(m.vcpus)),
				threads.Or(emulator), pinning, neighbourFix))
		case !emulator.Empty():
			out = append(out, h.intrusion(m, Emulator, "threads of QEMU itself", emulator, emulation,
				"pin them to CPUs kept for the host: virsh emulatorpin, virsh iothreadpin"))
		}
		out = append(out, h.ownEmulator(m)...)
	}
	return out
}

// othersAlone is those of cpus that a vCPU of another VM has for itself.
func (h *host) othersAlone(cpus farm.CPUSet, m *machine) farm.CPUSet {
	var on []int
	for _, cpu := range cpus.List() {
		if slices.ContainsFunc(h.alone[cpu], func(v vcpu) bool { return v.machine != m }) {
			on = append(on, cpu)
		}
	}
	return farm.NewCPUSet(on...)
}

func (h *host) intrusion(m *machine, kind Kind, who string, on farm.CPUSet, source tuning.Source, fix string) Problem {
	var others []string
	for _, cpu := range on.List() {
		for _, v := range h.alone[cpu] {
			if v.machine != m {
				others = append(others, v.machine.name)
			}
		}
	}
	slices.Sort(others)
	others = slices.Compact(others)
	return Problem{Kind: kind, Severity: tuning.Warning, VM: m.name, Others: others, CPUs: on, Source: source, Fix: fix,
		Message: fmt.Sprintf("%s may run on %s, which vCPUs of %s have for themselves", who, cpus(on),
			strings.Join(others, ", "))}
}

// ownEmulator finds QEMU's threads on CPUs of its own VM's pinned vCPUs, unless that is planned: a host without CPUs of
// its own has no better place.
func (h *host) ownEmulator(m *machine) []Problem {
	allowed := m.emulatorAllowed()
	for _, io := range m.io {
		if m.realTimeVCPUs() && !realTime(m.domain.IOThreadSched[io.number]) {
			allowed = allowed.Or(io.thread.Allowed)
		}
	}
	if m.plan != nil && allowed.Minus(m.plan.Emulator).Empty() || m.unnamed {
		return nil
	}
	var on []int
	for _, cpu := range allowed.List() {
		if slices.ContainsFunc(h.alone[cpu], func(v vcpu) bool { return v.machine == m }) {
			on = append(on, cpu)
		}
	}
	if len(on) == 0 {
		return nil
	}
	set := farm.NewCPUSet(on...)
	p := Problem{Kind: Emulator, Severity: tuning.Warning, VM: m.name, CPUs: set, Source: emulation,
		Message: fmt.Sprintf("threads of QEMU itself may run on %s, which its own vCPUs are pinned to", cpus(set)),
		Fix:     "pin them to CPUs kept for the host: virsh emulatorpin"}
	return []Problem{h.starved(m, p, allowed)}
}

// starved makes a problem worse where vCPUs with a real-time scheduler have the CPUs of QEMU's threads: a busy one lets
// no other thread run there.
func (h *host) starved(m *machine, p Problem, allowed farm.CPUSet) Problem {
	if m.domain == nil || realTime(m.domain.EmulatorSched) {
		return p
	}
	var taken farm.CPUSet
	scheduler := ""
	for _, v := range m.vcpus {
		if s := m.domain.VCPUSched[v.thread.VCPU]; realTime(s) && v.thread.Allowed.Len() == 1 {
			taken, scheduler = taken.Or(v.thread.Allowed), s
		}
	}
	if taken.And(p.CPUs).Empty() {
		return p
	}
	p.Source = realTimeScheduling
	p.Message += fmt.Sprintf("; these are real-time (%s) and leave them no time", scheduler)
	if allowed.Minus(taken).Empty() {
		p.Severity = tuning.Fault
	}
	return p
}

// realTimeVCPUs reports whether libvirt gives vCPUs of a machine a real-time scheduler.
func (m *machine) realTimeVCPUs() bool {
	return m.domain != nil && slices.ContainsFunc(m.vcpus, func(v vcpu) bool {
		return realTime(m.domain.VCPUSched[v.thread.VCPU])
	})
}

func realTime(scheduler string) bool { return scheduler == "fifo" || scheduler == "rr" }

// sharedCores finds cores whose SMT siblings pinned vCPUs of two VMs have. It costs something only where a whole core
// would be free.
func (h *host) sharedCores() []Problem {
	type pair struct{ a, b *machine }
	found := map[pair]farm.CPUSet{}
	var pairs []pair
	free := false
	for _, core := range h.Topology.Cores {
		on := h.pinnedTo(core.Threads)
		free = free || core.Threads.Len() > 1 && len(on) == 0 && h.unused(core.Threads)
		for i, a := range on {
			for _, b := range on[i+1:] {
				if h.onOneCPU(core.Threads, a, b) {
					continue // crowded, which is worse, and said
				}
				p := pair{a, b}
				if found[p].Empty() {
					pairs = append(pairs, p)
				}
				found[p] = found[p].Or(core.Threads)
			}
		}
	}
	var out []Problem
	for _, p := range pairs {
		problem := Problem{Kind: SharedCore, Severity: tuning.Advice, VM: p.a.name, Others: []string{p.b.name},
			CPUs: found[p], Source: siblings,
			Message: fmt.Sprintf("its vCPUs and those of %s are on SMT siblings of the same cores: %s", p.b.name,
				cpus(found[p])), Fix: "give VMs whole cores: even numbers of vCPUs, or a thread policy that keeps " +
				"siblings together"}
		if free {
			if p.a.plan == nil || p.b.plan == nil { // our own planner keeps cores for VMs to come
				problem.Severity = tuning.Warning
			}
			problem.Message += ", while whole cores are free"
		}
		if held := meantEmpty(p.a, p.b).And(found[p]); !held.Empty() {
			problem.Severity = tuning.Warning
			problem.Message += fmt.Sprintf("; planned to stay empty: %s", cpus(held))
		}
		out = append(out, problem)
	}
	return out
}

// pinnedTo is the machines that have a vCPU alone on one of cpus, each once.
func (h *host) pinnedTo(cpus farm.CPUSet) []*machine {
	var on []*machine
	for _, cpu := range cpus.List() {
		for _, v := range h.alone[cpu] {
			if !slices.Contains(on, v.machine) {
				on = append(on, v.machine)
			}
		}
	}
	return on
}

// unused reports whether no vCPU that is not free to run everywhere may run on cpus, and QEMU's threads are not pinned
// there.
func (h *host) unused(cpus farm.CPUSet) bool {
	for _, m := range h.machines {
		if !m.emulatorWanted().And(cpus).Empty() {
			return false
		}
		for _, v := range m.vcpus {
			if !v.thread.Allowed.And(cpus).Empty() {
				return false
			}
		}
	}
	return true
}

// onOneCPU reports whether both machines have a vCPU on one and the same of cpus.
func (h *host) onOneCPU(cpus farm.CPUSet, a, b *machine) bool {
	for _, cpu := range cpus.List() {
		has := func(m *machine) bool {
			return slices.ContainsFunc(h.alone[cpu], func(v vcpu) bool { return v.machine == m })
		}
		if has(a) && has(b) {
			return true
		}
	}
	return false
}

// meantEmpty is the CPUs that either plan holds beside those of its vCPUs: threads that nobody should use.
func meantEmpty(a, b *machine) farm.CPUSet {
	var held farm.CPUSet
	for _, m := range []*machine{a, b} {
		if m.plan != nil {
			held = held.Or(m.plan.Extra)
		}
	}
	return held
}
