package tuning

import (
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

func guestClockSource() Rule {
	return Rule{
		ID:       "guest-clocksource",
		Title:    "this VM reads the time from an emulated timer",
		Severity: Warning,
		Roles:    []Role{Guest},
		Holds:    "Linux guests on x86 whose kernel also knows kvm-clock, tsc or hyperv_clocksource.",
		Cost: "Not measured by the sources: each reading of the time leaves the guest for the hypervisor, " +
			"instead of being a function call.",
		Sources: []Source{
			kernelDoc("virt/kvm/x86/timekeeping",
				"emulated timers such as the HPET, the PIT and the ACPI timer are slow to read, because each access "+
					"leaves for the hypervisor"),
			{"Red Hat Enterprise Virtualization 3.0, Administration Guide, KVM virtual machine timing management",
				"https://access.redhat.com/documentation/en-US/Red_Hat_Enterprise_Virtualization/3.0/html/Administration_Guide/KVM_Clock_Appendix.html", "guests of release 5.5, 6.0 and newer use kvm-clock by default; running without it needs special configuration and is not recommended"},
		},
		Why: "Programs ask for the time far more often than one thinks: for each event, each log line, each network " +
			"message. With kvm-clock or the TSC the answer is computed in the program itself. With hpet or acpi_pm " +
			"each question stops the vCPU, goes to QEMU and comes back. " +
			"The kernel changes over by itself when it believes the better clock to be unstable, and says so in its log " +
			"only; or somebody put clocksource= on the boot line long ago.",
		Fix: "Set the clock source to kvm-clock, or to tsc where that is what there is.",
		Danger: "If the kernel marked the TSC as unstable it had a reason: look into dmesg first, and ask the owner " +
			"of the host for kvmclock.",
		Undo:  "Write the old name into current_clocksource.",
		Check: checkGuestClockSource,
	}
}

func checkGuestClockSource(h farm.HostFacts, _ Profile) []Finding {
	if !slices.Contains([]string{"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"}, h.Kernel.Clock) {
		return nil
	}
	f := Finding{Severity: Warning, Where: "this VM", Wanted: "clock source kvm-clock or tsc",
		Got: "clock source " + h.Kernel.Clock,
		Manual: "neither kvm-clock nor tsc is on offer: ask for <timer name='kvmclock' present='yes'/> where the VM " +
			"is defined"}
	for _, clock := range []string{"kvm-clock", "tsc", "hyperv_clocksource_tsc_page"} {
		if slices.Contains(h.Kernel.Clocks, clock) {
			f.Wanted, f.Manual = "clock source "+clock, ""
			f.Changes = []Change{{Kind: SetValue,
				Path: "sys/devices/system/clocksource/clocksource0/current_clocksource", Value: clock}}
			break
		}
	}
	return []Finding{f}
}
