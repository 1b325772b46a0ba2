package tuning

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func guestBootParameters() Rule {
	return Rule{
		ID:       "guest-boot-parameters",
		Title:    "this VM is booted with kernel parameters that hurt a guest",
		Severity: Warning,
		Roles:    []Role{Guest},
		Holds: "Linux guests on x86. notsc and clocksource= are right for guests of release 5 and 6.0 without " +
			"kvm-clock, and are left alone there; elevator= counts from kernel 5.0, divider= from 3.0.",
		Cost: "Not measured by the sources. CPUs that are not used cost all they could do; the others show as " +
			"exits, late timers and interrupts on one CPU.",
		Sources: []Source{
			kernelDoc("admin-guide/kernel-parameters", "what each of these parameters does"),
			redHatTuning("I/O scheduling in guests", "sect-virtualization_tuning_optimization_guide-io-scheduler-guest",
				"elevator=noop was for guests of release 6 and 7 with the old block layer; since 7.2 virtio-blk uses "+
					"none by itself"),
			{"Red Hat Enterprise Linux 6, Virtualization Host Configuration and Guest Installation Guide, required " +
				"parameters for guests",
				"https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/6/html/virtualization_host_configuration_and_guest_installation_guide/form-virtualization_host_configuration_and_guest_installation_guide-kvm_guest_timing_management-required_parameters_for_rhel_guests", "guests with kvm-clock, from 5.5 to 7, need no parameter; without it releases 5 and 6.0 need notsc or clocksource=acpi_pm; divider is no longer recommended"},
		},
		Why: "Boot lines are copied from template to template, for years. What helped a guest of release 5, before " +
			"there was kvm-clock, forbids a later one its best clock; what worked round a bug of a firmware on bare metal " +
			"takes the message-signalled interrupts away that virtio needs for more than one queue; " +
			"a limit on CPUs from a rescue boot stays for good. None of it shows, except in the boot line itself.",
		Fix:    "Take the parameter off the boot line and start the guest anew.",
		Danger: "If a parameter is there for a known fault of this guest, keep it.",
		Undo:   "Put the parameter back on the boot line.",
		Check:  checkGuestBootParameters,
	}
}

// badParam is a parameter that a guest should not have, for kernels since the given version.
type badParam struct {
	name, values string // values: those that are bad, separated by blanks; "" for any
	major        int
	why          string
}

var badParams = [...]badParam{
	{"no-kvmclock", "", 2, "forbids the paravirtual clock"},
	{"notsc", "", 2, "forbids the TSC, which kvm-clock is made of"},
	{"clocksource", "hpet acpi_pm pit jiffies", 2, "chooses an emulated timer"},
	{"divider", "", 3, "was for guests of release 5 and is not known any more"},
	{"maxcpus", "", 2, "leaves CPUs of the VM unused"},
	{"nr_cpus", "1", 2, "leaves CPUs of the VM unused"},
	{"nosmp", "", 2, "leaves all CPUs of the VM but one unused"},
	{"noapic", "", 2, "sends all interrupts to one CPU"},
	{"nolapic", "", 2, "leaves all CPUs of the VM but one unused"},
	{"pci", "nomsi", 2, "takes message-signalled interrupts away: virtio devices share one interrupt and have one " +
		"queue"},
	{"idle", "poll", 2, "keeps the host's CPUs busy while the guest has nothing to do, and takes the time from its " +
		"siblings and neighbours"},
	{"no-steal-acc", "", 3, "hides that the host takes time away"},
	{"elevator", "", 5, "has no effect any more: schedulers are chosen by udev or in /sys/block"},
}

func checkGuestBootParameters(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, p := range bootParams(nextLine(h.Kernel)) {
		for _, bad := range badParams {
			if !sameParam(p.name, bad.name) || !bad.has(p.value) || before(h.Kernel.Release, bad.major, 0) ||
				neededWithoutKVMClock(h.Kernel, bad.name) {
				continue
			}
			text := p.name
			if p.value != "" {
				text += "=" + p.value
			}
			f := Finding{Severity: Warning, Where: "this VM", Wanted: "no " + text, Got: text + " " + bad.why,
				Manual: "take " + text + " off the boot line, and start the guest anew"}
			if bad.name == "elevator" || bad.name == "divider" {
				f.Severity = Advice
			}
			if h.Kernel.BootFile != "" {
				f.Changes = []Change{{Kind: SetBoot, Name: p.name, Value: p.value, Remove: true, Reboot: true}}
				f.Manual = ""
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// neededWithoutKVMClock reports whether an old kernel that lacks kvm-clock is better off with a parameter.
func neededWithoutKVMClock(k farm.Kernel, name string) bool {
	return (name == "notsc" || name == "clocksource") && before(k.Release, 3, 0) &&
		!slices.Contains(k.Clocks, "kvm-clock")
}

func (b badParam) has(value string) bool {
	if b.values == "" {
		return true
	}
	bad := strings.Fields(b.values)
	return slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return slices.Contains(bad, v) })
}
