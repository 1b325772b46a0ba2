package tuning

import "github.com/grange-project/grange/internal/farm"

func vmPVSpinlocks() Rule {
	return Rule{
		ID:       "vm-pv-spinlocks",
		Title:    "a pinned VM has the spinlocks made for CPUs that others take away",
		Severity: Advice,
		Holds: "VMs whose vCPUs are pinned one to one, Linux guests. hint-dedicated needs QEMU 2.12, libvirt 5.7 " +
			"and kernel 4.17 in the guest, and before libvirt 9.0 perhaps host-passthrough; pvspinlock works with " +
			"older ones.",
		Cost: "Not measured with HS06: it shows in guests whose kernel waits much for locks, not in CPU-bound " +
			"jobs.",
		Sources: []Source{
			kernelDoc("virt/kvm/x86/cpuid",
				"KVM_HINTS_REALTIME tells a guest that its vCPUs are never preempted for an unlimited time, which "+
					"allows optimisations; KVM_FEATURE_PV_UNHALT lets it use paravirtualised spinlocks"),
			libvirtXML("hypervisor-features",
				"hint-dedicated lets a guest optimise for dedicated vCPUs; pvspinlock says whether paravirtual "+
					"spinlocks are offered"),
		},
		Why: "When a vCPU may lose its host CPU at any time, a guest thread that spins for a lock may wait for one " +
			"that does not run. KVM guests therefore use paravirtual spinlocks: after a while they halt, and the " +
			"owner wakes them with a call to the hypervisor. " +
			"A VM with a CPU for each vCPU never has that problem and only pays for the calls and the exits. The hint " +
			"tells the guest so: it takes the plain locks of a machine on bare metal, and polls a moment before it goes " +
			"idle.",
		Fix: "Give pinned VMs <hint-dedicated state='on'/>, or <pvspinlock state='off'/> for older guests.",
		Danger: "Wrong for VMs whose CPUs are shared: a guest that believes the hint spins while the owner of the " +
			"lock waits for its CPU.",
		Undo:  "Take the elements out.",
		Check: checkVMPVSpinlocks,
	}
}

func checkVMPVSpinlocks(h farm.HostFacts, _ Profile) []Finding {
	var out []Finding
	for _, d := range foreign(h) {
		if d.Type != "kvm" || d.VCPUs < 2 || !pinned(d) || d.HintDedicated == "on" || d.PVSpinlock == "off" {
			continue
		}
		put := "<pvspinlock state='off'/>"
		if takesHint(h.Versions.Libvirt, d.CPUMode) {
			// the guest leaves paravirtual spinlocks alone by itself then
			put = "<kvm><hint-dedicated state='on'/></kvm>"
		}
		out = append(out, Finding{Severity: Advice, Where: vmName(d), Wanted: "hint-dedicated on, or pvspinlock off",
			Got:    "each vCPU is pinned, and the guest does not know",
			Manual: edit(d, "put "+put+" into <features>, unless other VMs or programs use its CPUs as well")})
	}
	return out
}

// takesHint reports whether libvirt takes hint-dedicated for a CPU mode. Versions of 2020 and 2021 refuse it for all
// but host-passthrough; 9.0 takes it for any.
func takesHint(libvirt, mode string) bool {
	return mode == "host-passthrough" && !before(libvirt, 5, 7) || since(libvirt, 9, 0)
}
