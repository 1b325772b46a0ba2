package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func clocksourceNotTSC() Rule {
	return Rule{
		ID:       "clocksource-not-tsc",
		Title:    "the host's clock source is not the TSC",
		Severity: Warning,
		Holds:    "x86 hosts on bare metal of the last fifteen years, whose TSC runs at a constant rate.",
		Cost: "Not measured here: on the host each reading of the time goes to a slow device, and in guests " +
			"kvmclock is a system call instead of a few instructions. Programs that take time stamps in inner loops " +
			"notice.",
		Sources: []Source{
			{"Linux, arch/x86/kvm/x86.c, pvclock_update_vm_gtod_copy",
				"https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/arch/x86/kvm/x86.c",
				"KVM passes a stable clock (the master clock) to guests only when the host itself uses the TSC"},
			kernelDoc("virt/kvm/x86/timekeeping",
				"the TSC is the fastest clock; others are devices, read by I/O at a much higher price"),
		},
		Why: "The kernel gives the TSC up when it seems to run differently on two CPUs or against another clock; the " +
			"log says \"clocksource: Marking TSC unstable\". It then reads the HPET or the ACPI timer, devices that " +
			"are slow to read and that all CPUs share. " +
			"Guests suffer too: without a TSC on the host KVM cannot promise them one that agrees on all vCPUs. The " +
			"reason is firmware, often an old one, or a command line that names another clock.",
		Fix: "Look in the kernel log for why the TSC was marked unstable, update the firmware, and take " +
			"clocksource= or notsc off the command line.",
		Danger: "Do not force it with tsc=reliable before it is known why the kernel gave it up: time may run " +
			"backwards.",
		Undo:  "Write the old name to current_clocksource.",
		Check: checkClocksourceNotTSC,
	}
}

func checkClocksourceNotTSC(h farm.HostFacts, _ Profile) []Finding {
	clock := h.Kernel.Clock
	if clock == "" || clock == "tsc" || h.Virtual || !slices.Contains(h.Topology.CPU.Flags, "constant_tsc") {
		return nil
	}
	f := Finding{Severity: Warning, Where: "host", Wanted: "the clock source tsc", Got: "the clock source is " + clock}
	if slices.Contains(h.Kernel.Clocks, "tsc") {
		f.Changes = []Change{{Kind: SetValue, Path: "sys/devices/system/clocksource/clocksource0/current_clocksource",
			Value: "tsc"}}
		return []Finding{f}
	}
	f.Got += "; the kernel does not offer the TSC (it offers " + strings.Join(h.Kernel.Clocks, ", ") + ")"
	f.Manual = "see why in the kernel log (dmesg | grep -i tsc) and update the firmware"
	return []Finding{f}
}
