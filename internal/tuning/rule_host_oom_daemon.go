package tuning

import (
	"github.com/grange-project/grange/internal/farm"
)

func hostOOMDaemon() Rule {
	return Rule{
		ID:       "host-oom-daemon",
		Title:    "a daemon that kills the largest program when memory is short runs on the host",
		Severity: Warning,
		Holds: "Hosts with earlyoom, or with systemd-oomd. systemd-oomd acts only below units for which " +
			"ManagedOOMSwap= or ManagedOOMMemoryPressure= is kill, which some distributions set for the whole system.",
		Cost: "A VM with all its jobs is killed when the host is short of memory, perhaps long before the kernel " +
			"would have to.",
		Sources: []Source{
			{"systemd-oomd.service(8)", "https://man7.org/linux/man-pages/man8/systemd-oomd.8.html",
				"above its limits for swap use or memory pressure it kills all processes of a chosen control group; " +
					"ManagedOOMSwap= is recommended for the root slice"},
			{"earlyoom, README", "https://github.com/rfjakob/earlyoom",
				"when available memory and free swap fall below a share, it kills the process with the highest " +
					"oom_score"},
		},
		Why: "Such daemons keep desktops from freezing: they end the largest program a little before memory runs " +
			"out. On a hypervisor the largest programs are VMs. A host for VMs is meant to have its memory given " +
			"away, so free memory is always low there, " +
			"and a daemon with limits made for laptops sees danger where there is none. The VM vanishes with no message " +
			"in it, and the batch system reports a lost node.",
		Fix: "Stop and disable the daemon on hosts for VMs, or exempt machine.slice (ManagedOOMSwap=auto, " +
			"earlyoom --avoid qemu).",
		Danger: "A host that really runs out of memory then stalls until the kernel's own OOM killer acts, which may " +
			"choose a VM too.",
		Undo:  "Enable and start it again.",
		Check: checkHostOOMDaemon,
	}
}

func checkHostOOMDaemon(h farm.HostFacts, _ Profile) []Finding {
	if !runsVMs(h) {
		return nil
	}
	var out []Finding
	for _, name := range []string{"earlyoom", "systemd-oomd"} {
		if !runsOrStarts(h, name) {
			continue
		}
		f := Finding{Severity: Warning, Where: "service " + name, Wanted: "stopped and disabled, or VMs exempt",
			Got: serviceState(h.Services[name])}
		if name == "earlyoom" {
			f.Changes = []Change{{Kind: SetService, Unit: name, Value: "off"}}
		} else {
			f.Severity = Advice // it acts only where units ask for it
			f.Manual = "run oomctl: where it watches machine.slice or a unit above it, set ManagedOOMSwap=auto and " +
				"ManagedOOMMemoryPressure=auto there, or mask systemd-oomd"
		}
		out = append(out, f)
	}
	return out
}
