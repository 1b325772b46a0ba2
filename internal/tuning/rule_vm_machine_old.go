package tuning

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

func vmMachineOld() Rule {
	return Rule{
		ID:       "vm-machine-old",
		Title:    "a VM keeps the machine type of an old QEMU",
		Severity: Warning,
		Holds: "Versioned machine types of QEMU itself (pc-i440fx-2.1, pc-q35-7.2). Types of distributions, such " +
			"as pc-q35-rhel9.2, have rules of their own and are left out.",
		Cost: "Not measured: the VM misses what later types do by default, such as a queue for each vCPU of " +
			"virtio disks since 5.2. Six years on a QEMU upgrade may no longer start it.",
		Sources: []Source{
			qemuDoc("about/deprecated",
				"versioned machine types are deprecated after 3 years (9 releases) and deleted after 6 (18 "+
					"releases); they then serve migration from older hosts only"),
		},
		Why: "A machine type freezes the virtual hardware as it was in one release of QEMU, defaults and bugs " +
			"included, so that a VM can move between hosts of different age. libvirt writes the newest type into the " +
			"XML once, when the VM is defined, and never changes it again. " +
			"A VM defined long ago therefore runs with the virtual hardware of that time on the newest host. Since 3.0 a " +
			"major version is a year, with three releases.",
		Fix: "Let the VM have the newest type of the oldest host that it may move to.",
		Danger: "The guest sees new virtual hardware: device names may change, and it cannot move to hosts with an " +
			"older QEMU. Try it with a copy first.",
		Undo:  "Put the old type back.",
		Check: checkVMMachineOld,
	}
}

func checkVMMachineOld(h farm.HostFacts, _ Profile) []Finding {
	host, _, known := versionOf(h.Versions.QEMU)
	if !known {
		return nil
	}
	var out []Finding
	for _, d := range foreign(h) {
		major, _, ok := machineVersion(d.Machine)
		age := host - major
		if !ok || age < 3 {
			continue
		}
		f := Finding{Severity: Advice, Where: vmName(d),
			Wanted: fmt.Sprintf("a machine type no older than %d.0", host-2),
			Got:    fmt.Sprintf("%s; QEMU here is %s", d.Machine, h.Versions.QEMU),
			Manual: edit(d, "in <os> write machine='q35' (or 'pc' for a VM of type i440fx): libvirt puts the newest "+
				"version there")}
		if age >= 6 {
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}
