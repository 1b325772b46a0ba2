package verify

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// ownProblems are those of one VM by itself: its threads against its pins, and its pins against the host.
func (h *host) ownProblems(m *machine) []Problem {
	var out []Problem
	if m.unseen {
		return []Problem{{Kind: Unknown, Severity: tuning.Warning, VM: m.name, Source: hiding,
			Message: "it runs, and its threads are not to be seen: where they may run is not known",
			Fix: "look as root, or record the host again as root; restart libvirt's daemon where it takes a VM " +
				"that has ended for running"}}
	}
	if m.unnamed && len(m.proc.Threads) > 0 {
		out = append(out, Problem{Kind: Unknown, Severity: tuning.Advice, VM: m.name, Source: naming,
			Message: "QEMU does not name its threads: which of them are vCPUs is guessed",
			Fix:     "start it with -name NAME,debug-threads=on, as libvirt does"})
	}
	if m.unready {
		return []Problem{{Kind: Unknown, Severity: tuning.Advice, VM: m.name, Source: naming,
			Message: "it starts or ends: not all of its threads are there, or where they will be", Fix: "look again"}}
	}
	if n := len(m.vcpus); m.plan != nil && !m.unnamed && n != len(m.plan.VCPUs) {
		out = append(out, Problem{Kind: Differs, Severity: tuning.Warning, VM: m.name, Source: affinity,
			Message: fmt.Sprintf("it has %d vCPU threads, planned are %d", n, len(m.plan.VCPUs)),
			Fix:     "end the VM; its job can run again"})
	}
	for _, check := range []func(*machine) []Problem{h.differing, h.strays, h.offline, h.unbalanced, h.confined,
		h.emulatorStrays} {
		out = append(out, check(m)...)
	}
	return out
}

// group gathers vCPUs of one VM that have the same trouble into one problem.
type group struct {
	cpus farm.CPUSet
	says []string // one text for each vCPU
}

func (g *group) add(cpus farm.CPUSet, says string) {
	g.cpus, g.says = g.cpus.Or(cpus), append(g.says, says)
}

// problem is nil when the group is empty.
func (g group) problem(kind Kind, severity tuning.Severity, m *machine, source tuning.Source, fix string) []Problem {
	if len(g.says) == 0 {
		return nil
	}
	return []Problem{{Kind: kind, Severity: severity, VM: m.name, CPUs: g.cpus, Message: some(g.says), Fix: fix,
		Source: source}}
}

// some joins texts, naming a few of them.
func some(texts []string) string {
	const most = 4
	if n := len(texts); n > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:most], "; "), n-most)
	}
	return strings.Join(texts, "; ")
}

// differing finds pins that libvirt has and the plan has not.
func (h *host) differing(m *machine) []Problem {
	if m.plan == nil || m.domain == nil {
		return nil
	}
	var g group
	for _, v := range m.vcpus {
		if !v.planned.Equal(v.libvirt) {
			g.add(v.planned.Or(v.libvirt),
				fmt.Sprintf("%s is planned on %s, libvirt has it on %s", v.label, cpus(v.planned), cpus(v.libvirt)))
		}
	}
	return g.problem(Differs, tuning.Warning, m, affinity,
		"somebody changed the VM's pins (virsh vcpupin): pin it back as planned, or end it")
}

// strays finds vCPUs that the kernel lets run elsewhere than wanted.
func (h *host) strays(m *machine) []Problem {
	var g group
	for _, v := range m.vcpus {
		allowed := v.thread.Allowed
		here := v.wanted.And(h.Topology.Online)
		if here.Empty() || allowed.Equal(v.wanted) || allowed.Equal(here) || allowed.Equal(v.libvirt) {
			continue // not pinned, as wanted, or said of an offline CPU or of libvirt's pin
		}
		g.add(allowed, fmt.Sprintf("%s may run on %s, wanted is %s", v.label, cpus(allowed), cpus(v.wanted)))
	}
	return g.problem(Stray, tuning.Warning, m, pinning,
		"look for what moves threads (numad, cgroup managers, taskset), then pin them back: virsh vcpupin")
}

// emulatorStrays finds threads of QEMU itself that may run beyond their pin.
func (h *host) emulatorStrays(m *machine) []Problem {
	wanted := m.emulatorWanted()
	if extra := m.emulatorAllowed().Minus(wanted); !wanted.Empty() && !extra.Empty() {
		return []Problem{{Kind: Stray, Severity: tuning.Warning, VM: m.name, CPUs: extra, Source: emulation,
			Message: fmt.Sprintf("emulator threads may run on %s, wanted is %s", cpus(m.emulatorAllowed()),
				cpus(wanted)), Fix: "look for what moves threads, then pin them back: virsh emulatorpin"}}
	}
	var out []Problem
	for _, io := range m.io {
		wanted := io.wanted()
		if extra := io.thread.Allowed.Minus(wanted); !wanted.Empty() && !extra.Empty() {
			out = append(out, Problem{Kind: Stray, Severity: tuning.Warning, VM: m.name, CPUs: extra, Source: emulation,
				Message: fmt.Sprintf("I/O thread %d may run on %s, wanted is %s", io.number, cpus(io.thread.Allowed),
					cpus(wanted)), Fix: "look for what moves threads, then pin it back: virsh iothreadpin"})
		}
	}
	return out
}

// offline finds pins to CPUs that are not there. Where a vCPU has no other, the kernel runs it anywhere.
func (h *host) offline(m *machine) []Problem {
	var g group
	severity := tuning.Warning
	for _, v := range m.vcpus {
		gone := v.wanted.Minus(h.Topology.Online)
		if gone.Empty() {
			continue
		}
		if gone.Equal(v.wanted) {
			severity = tuning.Fault
		}
		g.add(gone, fmt.Sprintf("%s is pinned to %s, offline", v.label, cpus(gone)))
	}
	other := func(what string, wanted farm.CPUSet) {
		gone := wanted.Minus(h.Topology.Online)
		if gone.Empty() {
			return
		}
		if gone.Equal(wanted) {
			severity = tuning.Fault
		}
		g.add(gone, fmt.Sprintf("%s is pinned to %s, offline", what, cpus(gone)))
	}
	if len(g.says) == 0 || m.domain == nil || !m.emulatorWanted().Equal(m.domain.VCPUPins[0]) {
		other("the emulator", m.emulatorWanted()) // without a pin of its own, libvirt gives it that of the vCPUs
	}
	for _, io := range m.io {
		other(fmt.Sprintf("I/O thread %d", io.number), io.wanted())
	}
	return g.problem(Offline, severity, m, affinity, "bring the CPUs online, or pin these threads elsewhere")
}

// unbalanced finds vCPUs on CPUs that the scheduler leaves alone. One vCPU alone on one such CPU is what they are for.
func (h *host) unbalanced(m *machine) []Problem {
	var stuck, alone group
	for _, v := range m.vcpus {
		set := v.wanted
		if set.Empty() {
			set = v.thread.Allowed
		}
		on := set.And(h.isolated)
		switch {
		case on.Empty():
		case set.Len() > 1:
			stuck.add(on, fmt.Sprintf("%s may run on %s, on isolated %s too: nobody moves it off one that is busy",
				v.label, cpus(set), cpus(on)))
		default:
			alone.add(on, fmt.Sprintf("%s is pinned to %s, which is isolated", v.label, cpus(on)))
		}
	}
	return append(stuck.problem(Isolated, tuning.Warning, m, scheduling,
		"pin each vCPU to one isolated CPU, or take these out of isolcpus"),
		alone.problem(Isolated, tuning.Advice, m, scheduling,
			"nothing, when one vCPU alone on an isolated CPU is intended")...)
}

// confined finds pins that the control group does not allow.
func (h *host) confined(m *machine) []Problem {
	var g group
	for _, v := range m.vcpus {
		cpuset := v.thread.Cpuset
		if cpuset.Empty() {
			cpuset = m.proc.Cpuset
		}
		if outside := v.wanted.And(h.Topology.Online).Minus(cpuset); !cpuset.Empty() && !outside.Empty() {
			g.add(outside, fmt.Sprintf("%s is pinned to %s, its control group allows %s", v.label, cpus(v.wanted),
				cpus(cpuset)))
		}
	}
	return g.problem(Cpuset, tuning.Warning, m, affinity,
		"widen the group's cpuset (AllowedCPUs= of machine.slice under systemd), or pin the vCPUs inside of it")
}

// cpus is a set for people: "CPU 4", "CPUs 0-3".
func cpus(s farm.CPUSet) string { return counted(s, "CPU") }

// counted puts the singular or plural of what is in a set in front of it.
func counted(s farm.CPUSet, what string) string {
	switch s.Len() {
	case 0:
		return "no " + what
	case 1:
		return what + " " + s.String()
	}
	return what + "s " + s.String()
}
