package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmHPET() Rule {
	return Rule{
		ID:       "vm-hpet",
		Title:    "a VM has an emulated HPET",
		Severity: Advice,
		Holds:    "x86 VMs under KVM; libvirt leaves the HPET in unless the XML takes it out.",
		Cost: "Not measured by the sources; nothing as long as the guest does not use it, and an exit to QEMU " +
			"for each reading and each tick when it does.",
		Sources: []Source{
			kernelDoc("virt/kvm/x86/timekeeping",
				"an HPET is emulated outside the guest: each access leaves for the hypervisor, and its interrupts "+
					"may come late or in bursts"),
			{"OpenStack Nova, libvirt driver, guest timers",
				"https://opendev.org/openstack/nova/src/branch/master/nova/virt/libvirt/driver.py",
				"sets hpet to present='no', pit to tickpolicy='delay' and rtc to tickpolicy='catchup' for KVM guests"},
		},
		Why: "The HPET is a timer of real machines which QEMU imitates in user space. A Linux guest prefers kvmclock " +
			"and its local APIC timer, but falls back to the HPET when it distrusts them, without telling anybody " +
			"but its log; from then on the clock is slow and uneven. " +
			"Without an HPET there is nothing bad to fall back to. Nova and virt-install leave it out for the same reason.",
		Fix:    "Take the HPET out, and set the policies of the other emulated timers at the same time.",
		Danger: "A guest that uses the HPET needs another clock: look at its clock source first.",
		Undo:   "Put <timer name='hpet' present='yes'/> into <clock>.",
		Check:  checkVMHPET,
	}
}

func checkVMHPET(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		if d.Type == "kvm" && strings.HasPrefix(d.Machine, "pc") && d.Timers["hpet"] != "no" {
			out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "timer hpet: present='no'",
				Got: "the XML leaves the HPET in",
				Manual: edit(d, "in <clock> put <timer name='rtc' tickpolicy='catchup'/><timer name='pit' "+
					"tickpolicy='delay'/><timer name='hpet' present='no'/>")})
		}
	}
	return out
}
