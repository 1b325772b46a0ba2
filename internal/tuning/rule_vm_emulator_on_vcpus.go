package tuning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

func vmEmulatorOnVCPUs() Rule {
	return Rule{
		ID:       "vm-emulator-on-vcpus",
		Title:    "QEMU's own threads may run on the CPUs of a pinned VM's vCPUs",
		Severity: Fault,
		Holds: "VMs whose vCPUs are pinned one to one, on hosts that keep some CPUs free of vCPUs; and all VMs whose " +
			"pinned vCPUs have a real-time scheduler (<vcpusched>, fifo or rr): there it is a fault.",
		Cost: "Not measured by the sources: short interruptions of single vCPUs whenever the VM does I/O. It " +
			"matters to jobs that synchronise all their threads.",
		Sources: []Source{
			libvirtXML("cpu-tuning",
				"emulatorpin says where the emulator, all of QEMU but its vCPUs and I/O threads, may run; without it "+
					"all CPUs"),
			redHatTuning("using emulatorpin",
				"sect-Virtualization_Tuning_Optimization_Guide-NUMA-NUMA_and_libvirt-Using_emulatorpin",
				"emulatorpin places the emulator's threads, and with them vhost, on chosen CPUs"),
			{"OpenStack Nova, CPU topologies, emulator threads",
				"https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
				"by default emulator threads run on the CPUs of the instance's vCPUs; they can be isolated or moved " +
					"to shared CPUs"},
			{"Linux, sched(7), real-time scheduling", "https://man7.org/linux/man-pages/man7/sched.7.html",
				"a thread of SCHED_FIFO or SCHED_RR runs until it waits; threads of the ordinary scheduler on that CPU " +
					"do not run as long"},
		},
		Why: "Beside the vCPUs a QEMU process has a main loop and workers, and vhost threads of the kernel that " +
			"carry its network. Where nothing says otherwise they run on any CPU the VM may use, in the middle of " +
			"the vCPUs' time. A vCPU that is interrupted for them holds up all the others that wait for it. If the " +
			"host keeps CPUs for itself anyway, this work belongs there. With vCPUs of a real-time scheduler it is " +
			"the other way round: a busy vCPU never lets QEMU run, its disks and network stop, and a VM that is " +
			"asked to end does not.",
		Fix: "Give the VM an <emulatorpin>, and its I/O threads an <iothreadpin>, to CPUs without vCPUs, best on " +
			"the same node.",
		Danger: "Too few CPUs for the emulators of all VMs slow their I/O down.",
		Undo:   "Take the <emulatorpin> and <iothreadpin> out.",
		Check:  checkVMEmulatorOnVCPUs,
	}
}

func checkVMEmulatorOnVCPUs(h farm.HostFacts, _ Profile) []Finding {
	free := unpinnedCPUs(h)
	var out []Finding
	for _, d := range foreign(h) {
		if f, found := starvedThreads(h, d); found {
			out = append(out, f)
			continue
		}
		if !pinned(d) || free.Empty() {
			continue
		}
		own := pinsOf(d, farm.CPURange(0, d.VCPUs))
		loose := looseThreads(d, own)
		if len(loose) == 0 {
			continue
		}
		f := Finding{Severity: Advice, Where: vmName(d),
			Wanted: fmt.Sprintf("QEMU's own threads off the vCPUs' CPUs %s", own)}
		f.Got, f.Manual, f.Edits = awayFromVCPUs(h, d, loose)
		out = append(out, f)
	}
	return out
}

// starvedThreads finds QEMU's threads on CPUs of vCPUs with a real-time scheduler.
func starvedThreads(h farm.HostFacts, d farm.Domain) (Finding, bool) {
	var own farm.CPUSet
	scheduler := ""
	for vcpu := range d.VCPUs {
		if s := d.VCPUSched[vcpu]; realTime(s) && d.VCPUPins[vcpu].Len() == 1 {
			own, scheduler = own.Or(d.VCPUPins[vcpu]), s
		}
	}
	f := Finding{Severity: Warning, Where: vmName(d),
		Wanted: fmt.Sprintf("QEMU's own threads off CPUs %s, whose vCPUs have scheduler %s", own, scheduler)}
	var loose []ownThread
	for _, t := range looseThreads(d, own) {
		if realTime(t.scheduler) {
			continue
		}
		if !t.pin.Empty() && t.pin.Minus(own).Empty() {
			f.Severity = Fault // no other CPU is left to it
		}
		loose = append(loose, t)
	}
	if own.Empty() || len(loose) == 0 {
		return f, false
	}
	f.Got, f.Manual, f.Edits = awayFromVCPUs(h, d, loose)
	f.Got += fmt.Sprintf(": vCPUs with scheduler %s there leave them no time", scheduler)
	return f, true
}

func realTime(scheduler string) bool { return scheduler == "fifo" || scheduler == "rr" }

// ownThread is a thread of QEMU that is not a vCPU.
type ownThread struct {
	what, element, scheduler string
	pin                      farm.CPUSet
}

// looseThreads are the threads of QEMU that may run on some CPUs.
func looseThreads(d farm.Domain, own farm.CPUSet) []ownThread {
	return slices.DeleteFunc(ownThreads(d), func(t ownThread) bool {
		return !t.pin.Empty() && t.pin.And(own).Empty()
	})
}

// ownThreads are the threads of QEMU that can have pins beside its vCPUs.
func ownThreads(d farm.Domain) []ownThread {
	out := []ownThread{{"emulator", "cputune/emulatorpin", d.EmulatorSched, d.EmulatorPin}}
	for id := 1; id <= d.IOThreads; id++ {
		out = append(out, ownThread{fmt.Sprintf("I/O thread %d", id),
			fmt.Sprintf("cputune/iothreadpin[iothread=%d]", id), d.IOThreadSched[id], d.IOThreadPins[id]})
	}
	return out
}

// awayFromVCPUs says where threads of QEMU are, and how they come to CPUs without vCPUs.
func awayFromVCPUs(h farm.HostFacts, d farm.Domain, loose []ownThread) (got, manual string, edits []Edit) {
	near := serviceCPUs(h, d)
	var names, elements []string
	for _, t := range loose {
		if t.pin.Empty() {
			names = append(names, t.what+" not pinned")
		} else {
			names = append(names, t.what+" on "+number("CPU", t.pin))
		}
		if !near.Empty() {
			edits = append(edits, set(d, t.element, "cpuset", near.String()))
			elements = append(elements, t.what)
		}
	}
	if near.Empty() {
		return few(names), edit(d, "take one vCPU away and give its CPU to the emulator and the I/O threads, or take "+
			"<vcpusched> out: every CPU has a pinned vCPU"), nil
	}
	return few(names), edit(d, fmt.Sprintf("in <cputune> pin %s to CPUs %s (<emulatorpin cpuset='%[2]s'/>, "+
		"<iothreadpin iothread='n' cpuset='%[2]s'/>): these CPUs have no pinned vCPU", strings.Join(elements, ", "),
		near)), edits
}
