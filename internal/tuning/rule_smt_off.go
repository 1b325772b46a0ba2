package tuning

import (
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func smtOff() Rule {
	return Rule{
		ID:       "smt-off",
		Title:    "SMT is off by the kernel's setting, though the profile wants it on",
		Severity: Warning,
		Roles:    []Role{Compute},
		Holds: "Processors with SMT whose kernel says off or forceoff. SMT that the firmware has switched off " +
			"cannot be seen and is not reported.",
		Cost: "About a sixth of the throughput: with SMT CERN's typical 2-socket Xeon hosts gave 20 % more in " +
			"total (2015), though each thread is slower.",
		Sources: []Source{
			cernTopology("SMT leads to 20 % more total throughput, although each individual thread runs slower"),
			kernelDoc("admin-guide/hw-vuln/l1tf",
				"SMT is turned off with nosmt, l1tf= or the control file; on affected processors SMT lets a guest "+
					"read what the sibling thread works with, and SMT off is the full protection"),
		},
		Why: "A thread that waits for memory leaves its core idle; the second thread fills the gap. For high " +
			"throughput that counts more than the speed of one thread. SMT may be off for a reason, though: on " +
			"processors with L1TF, MDS and their like, " +
			"two threads of a core can spy on each other. If VMs of different users may share a core here, keep it off, " +
			"or place VMs on whole cores only, as grange's planner does, and judge the rest of the risk.",
		Fix: "Decide whether the reason still stands. If not, write on to the control file and take nosmt off the " +
			"command line.",
		Danger: "On processors that are affected, guests that share a core can read each other's data, and the host's.",
		Undo:   "Write off to /sys/devices/system/cpu/smt/control and put nosmt back.",
		Check:  checkSMTOff,
	}
}

func checkSMTOff(h farm.HostFacts, p Profile) []Finding {
	if p.SMT != "on" || h.SMT != "off" && h.SMT != "forceoff" || h.Virtual {
		return nil
	}
	f := Finding{Severity: Warning, Where: "host", Wanted: "SMT on", Got: "SMT is " + h.SMT}
	leaks := crossThread(h, "SMT disabled")
	if len(leaks) > 0 || h.SMT == "forceoff" {
		f.Manual = "a decision about security: SMT is off by choice"
		if len(leaks) > 0 {
			f.Got += "; this processor leaks between threads: " + strings.Join(leaks, ", ")
		}
		f.Manual += "; where VMs of different users never share a core, take nosmt off the command line and reboot"
		return []Finding{f}
	}
	f.Changes = []Change{{Kind: SetValue, Path: "sys/devices/system/cpu/smt/control", Value: "on"}}
	if _, ok := bootValue(h.Kernel.NextBoot, "nosmt"); ok && h.Kernel.BootFile != "" {
		f.Changes = append(f.Changes, Change{Kind: SetBoot, Name: "nosmt", Remove: true, Reboot: true})
	}
	return []Finding{f}
}
