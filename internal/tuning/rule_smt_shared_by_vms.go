package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func smtSharedByVMs() Rule {
	return Rule{
		ID:       "smt-shared-by-vms",
		Title:    "different VMs may run on the threads of one core, on a processor that leaks between them",
		Severity: Advice,
		Holds: "Processors whose kernel reports \"SMT vulnerable\" (L1TF, MDS, TAA, MMIO stale data), with SMT on " +
			"and two or more VMs that can meet on a core.",
		Cost: "Security, not speed. The ways out cost: SMT off about a sixth of the throughput (CERN: SMT gives " +
			"20 % more); pinning to whole cores nothing on a host that is full of jobs. Flushing the L1 cache on " +
			"entry to a guest was seen to cost 1 to 50 %, by how often guests leave.",
		Sources: []Source{
			kernelDoc("admin-guide/hw-vuln/l1tf",
				"the mitigations in force do not protect against the sibling thread; guests on cores of their own, "+
					"or SMT off, do; flushing L1D cost 1 to 50 %"),
			kernelDoc("admin-guide/hw-vuln/mds",
				"all variants but one can be attacked across threads, so full protection for untrusted guests needs "+
					"SMT off"),
			cernTopology("SMT leads to 20 % more total throughput"),
		},
		Why: "On these processors a program can pick up data that the other thread of its core is working with, " +
			"through buffers that both share. The kernel clears them when it switches between guest and host, but it " +
			"cannot do so while both threads run. " +
			"When the two threads belong to one VM, it can only spy on itself. So VMs of different owners should not " +
			"share a core: pin each VM to whole cores, or use core scheduling.",
		Fix: "Pin VMs to whole cores (grange's planner does so by default), use core scheduling (Linux 5.14), or " +
			"turn SMT off. Turning mitigations off is not a fix.",
		Danger: "VMs with an odd number of vCPUs use one thread of a core and leave the other idle.",
		Undo:   "Take the pins off.",
		Check:  checkSMTSharedByVMs,
	}
}

func checkSMTSharedByVMs(h farm.HostFacts, _ Profile) []Finding {
	leaks := crossThread(h, "SMT vulnerable")
	if len(leaks) == 0 || h.SMT == "off" || h.SMT == "forceoff" || h.Virtual {
		return nil
	}
	a, b, core := meetOnCore(h)
	if a == "" {
		return nil
	}
	return []Finding{{Severity: Advice, Where: fmt.Sprintf("core of CPUs %s", core),
		Wanted: "the threads of a core in one VM only",
		Got:    fmt.Sprintf("VMs %s and %s can both run here; SMT vulnerable: %s", a, b, strings.Join(leaks, ", ")),
		Manual: "pin VMs of different owners to cores of their own, or turn SMT off"}}
}

// crossThread lists the vulnerabilities whose report holds these words.
func crossThread(h farm.HostFacts, words string) []string {
	var out []string
	for name, text := range h.Vulnerabilities {
		if strings.Contains(text, words) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// meetOnCore finds two running VMs that may use the same core with more than one thread.
func meetOnCore(h farm.HostFacts) (a, b string, core farm.CPUSet) {
	type user struct {
		name string
		cpus farm.CPUSet
	}
	var users []user
	for _, d := range h.Domains {
		if d.Running {
			users = append(users, user{d.Name, vcpuRoom(h, d)})
		}
	}
	for _, c := range h.Topology.Cores {
		if c.Threads.Len() < 2 {
			continue
		}
		first := ""
		for _, u := range users {
			if u.cpus.And(c.Threads).Empty() {
				continue
			}
			if first != "" {
				return first, u.name, c.Threads
			}
			first = u.name
		}
	}
	return "", "", farm.CPUSet{}
}

// vcpuRoom is every CPU that a VM's vCPUs may use.
func vcpuRoom(h farm.HostFacts, d farm.Domain) farm.CPUSet {
	if len(d.VCPUPins) < d.VCPUs || len(d.VCPUPins) == 0 {
		return h.Topology.Online.Minus(isolated(h))
	}
	var all farm.CPUSet
	for _, pins := range d.VCPUPins {
		all = all.Or(pins)
	}
	return all
}
