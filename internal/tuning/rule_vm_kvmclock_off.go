package tuning

import "github.com/grange-project/grange/internal/farm"

func vmKVMClockOff() Rule {
	return Rule{
		ID:       "vm-kvmclock-off",
		Title:    "a VM has no kvmclock",
		Severity: Warning,
		Holds: "Linux guests under KVM. Where the host's TSC is stable and the guest may see that (invtsc), it " +
			"uses the TSC and loses little.",
		Cost: "Not measured by the sources. A guest that falls back to HPET or the ACPI timer leaves for QEMU at " +
			"each reading of the time.",
		Sources: []Source{
			kernelDoc("virt/kvm/x86/timekeeping",
				"reading emulated timers such as HPET, PIT or the ACPI timer leaves for the hypervisor; the TSC "+
					"needs care when it is not constant or VMs move"),
			{"Red Hat Enterprise Virtualization 3.0, Administration Guide, KVM virtual machine timing management",
				"https://access.redhat.com/documentation/en-US/Red_Hat_Enterprise_Virtualization/3.0/html/Administration_Guide/KVM_Clock_Appendix.html", "guests of release 5.5, 6.0 and newer use kvm-clock by default; running without it needs special configuration and is not recommended"},
			libvirtXML("time-keeping",
				"the kvmclock timer is the paravirtual clock of KVM guests; present='no' hides it"),
		},
		Why: "kvmclock is memory that the hypervisor keeps filled with what a guest needs to turn the TSC into the " +
			"time: reading the clock is a function call, and stays right when the VM moves to a host with another " +
			"frequency. " + "Without it a guest must trust the bare TSC, or where it cannot, read an emulated timer. " +
			"Programs that take the time for each event or each message then spend more on the clock than on their " +
			"work.",
		Fix:    "Take the timer element with present='no' out.",
		Danger: "",
		Undo:   "Put <timer name='kvmclock' present='no'/> back.",
		Check:  checkVMKVMClockOff,
	}
}

func checkVMKVMClockOff(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		if d.Type == "kvm" && d.Timers["kvmclock"] == "no" {
			out = append(out, Finding{Severity: Warning, Where: vmName(d), Wanted: "timer kvmclock present",
				Got:    "timer kvmclock: present='no'",
				Manual: edit(d, "in <clock> make it <timer name='kvmclock' present='yes'/>")})
		}
	}
	return out
}
