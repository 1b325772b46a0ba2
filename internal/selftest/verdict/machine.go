package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Machine is what was seen of one VM while it ran.
type Machine struct {
	Shape   Shape
	Failed  string // the code of why it did not start, or did not end well; "": it did
	Refused bool   // there was no room when it was asked for
	Details []string

	Accelerator string // as the agent says
	KVM         KVMState
	Proof       string   // the verdict of tune verify; "": there is none
	Problems    []string // their kinds, of the VM
	Guest       *Guest   // nil: the guest has not reported
	Label       Label
	Memory      MemoryUse
	Plan        farm.Plan
}

// tried reports whether the VM was asked for and not refused for want of room.
func (m Machine) tried() bool { return m.Shape.Missing == "" && m.Shape.InUse == "" && !m.Refused }

// ran reports whether the VM was seen running.
func (m Machine) ran() bool { return m.tried() && m.Failed == "" }

// KVMState is what the host's kernel says of a QEMU process.
type KVMState struct {
	Known      bool
	VMs, VCPUs int    // of KVM, that it has open
	GuestTicks uint64 // clock ticks of CPU time in guests
	Paging     string // the parameter of EPT or NPT that is off; "": they are on, or it is not told
	Nested     bool   // the host is a VM itself
}

// Guest is what a guest's kernel sees.
type Guest struct{ Differs []string }

// Label is how the host's security module confines a QEMU process.
type Label struct {
	Module  string // "apparmor", "selinux"; "": the host has none
	Profile string // "libvirt-…", "svirt_t"; "": it is not confined
	Enforce bool
	Root    bool // it runs as root
	OwnUser bool // it runs as a user that no other VM has
}

// MemoryUse is what a VM costs the host beside its guest's memory.
type MemoryUse struct {
	Known          bool
	Overhead, Need farm.Bytes // as measured, and as planned for
}

// first returns the first machine that ran, or why there is none.
func first(all []Machine) (Machine, *Finding) {
	for _, m := range all {
		if m.ran() {
			return m, nil
		}
	}
	for _, m := range all {
		if m.tried() {
			f := Failed("no VM was started", m.Failed)
			f.Details = m.Details
			return Machine{}, &f
		}
	}
	return Machine{}, &Finding{Verdict: NotApplicable, Reason: noRoomNow,
		Remedy: whenQuiet}
}

// JudgeKVM decides whether VMs run on KVM, by what the kernel says of their processes.
func JudgeKVM(all []Machine) Finding {
	m, none := first(all)
	if none != nil {
		return *none
	}
	k := m.KVM
	f := Finding{Figures: map[string]float64{"vcpus": float64(k.VCPUs), "guest_ticks": float64(k.GuestTicks)}}
	nested := ""
	if k.Nested {
		nested = "; the host is a virtual machine itself"
	}
	switch {
	case !k.Known:
		f.Verdict, f.Reason = Warning, "the kernel does not tell what QEMU has open"
		f.Remedy = "repeat it as root of the host, outside of containers"
	case k.VMs == 0:
		f.Verdict, f.Reason = Bad, "VMs are emulated, many times slower than on KVM"
		f.Remedy = "`grange host show` says why: turn virtualisation on in the firmware, load kvm_intel or kvm_amd, " +
			"and let QEMU's user open /dev/kvm"
		f.Details = m.Details
	case k.VCPUs != m.Shape.CPUs:
		f.Verdict = Bad
		f.Reason = fmt.Sprintf("KVM runs %s of a VM that has %d", count(k.VCPUs, "vCPU"), m.Shape.CPUs)
		f.Remedy = "see QEMU's log of the VM, and report it"
	case k.GuestTicks == 0:
		f.Verdict, f.Reason = Warning, "KVM is open, and the kernel counts no CPU time in guests"
		f.Remedy = "see whether the host counts CPU time at all: the guest time in /proc/stat"
	case k.Paging != "":
		f.Verdict, f.Reason = Bad, "KVM runs without hardware page tables: "+k.Paging+" is off"
		f.Remedy = "`grange tune explain ept-off`, then `grange tune plan`"
	default:
		f.Verdict, f.Reason = Good, fmt.Sprintf(
			"QEMU holds a VM of KVM with %s, whose time the kernel counts as a guest's%s",
			count(k.VCPUs, "vCPU"), nested)
	}
	return f
}

// JudgeConfinement decides whether a security module confines QEMU.
func JudgeConfinement(all []Machine) Finding {
	m, none := first(all)
	if none != nil {
		return *none
	}
	l := m.Label
	name := map[string]string{"apparmor": "AppArmor", "selinux": "SELinux"}[l.Module]
	user := "a user of its own"
	if !l.OwnUser {
		user = "the user of all VMs"
	}
	switch {
	case l.Root:
		return Finding{Verdict: Bad, Reason: "QEMU runs as root",
			Remedy: "set vm_uids in the agent's configuration, or user in libvirt's qemu.conf"}
	case l.Module == "":
		return Finding{Verdict: Warning, Reason: "the host has no security module that confines QEMU; it runs as " +
			user, Remedy: "turn AppArmor or SELinux on, as the distribution has it"}
	case l.Profile == "":
		return Finding{Verdict: Bad, Reason: name + " is on, and QEMU is not confined",
			Remedy: "take security_driver out of libvirt's qemu.conf, and restart libvirtd"}
	case !l.Enforce:
		return Finding{Verdict: Warning,
			Reason: fmt.Sprintf("%s notes what profile %s does not allow, and lets it pass", name, l.Profile),
			Remedy: "let it enforce: aa-enforce, or setenforce 1"}
	}
	f := Finding{Verdict: Good,
		Reason: fmt.Sprintf("%s confines QEMU to profile %s, and it runs as %s", name, l.Profile, user)}
	if !l.OwnUser {
		f.Verdict, f.Remedy = Warning, "set vm_uids in the agent's configuration: each VM is a user of its own then"
	}
	return f
}

// ParseLabel reads a process's label, as /proc/PID/attr/current has it. A VM's own name is left out of it.
func ParseLabel(module, text string, enforcing bool) Label {
	l := Label{Module: module, Enforce: enforcing}
	text = strings.TrimRight(text, "\x00\n ")
	switch module {
	case "apparmor":
		name, mode, _ := strings.Cut(text, " (")
		if name != "unconfined" {
			l.Profile, l.Enforce = withoutUUID(name), strings.TrimSuffix(mode, ")") == "enforce"
		}
	case "selinux":
		if parts := strings.Split(text, ":"); len(parts) > 2 && strings.HasPrefix(parts[2], "svirt") {
			l.Profile = parts[2]
		}
	}
	return l
}

// withoutUUID leaves the UUID of a VM out of libvirt's name of a profile: "libvirt-" and that.
func withoutUUID(name string) string {
	if rest, ok := strings.CutPrefix(name, "libvirt-"); ok && len(rest) == 36 {
		return "libvirt-UUID"
	}
	return name
}

// tally sorts machines by how they went, in words.
type tally struct {
	good, wrong, left []string
	details           []string
	code              string // of the first that failed
}

// tallyOf asks of each machine that ran what is wrong with it.
func tallyOf(all []Machine, wrong func(Machine) string) tally {
	var t tally
	for _, m := range all {
		name := m.Shape.Name
		switch why := m.Shape.Missing + m.Shape.InUse; {
		case why != "":
			t.left = append(t.left, name+": not tried, "+why)
		case m.Refused:
			t.left = append(t.left, name+": not tried, its CPUs or memory are in use")
		default:
			if text := wrong(m); text != "" {
				t.wrong, t.details = append(t.wrong, name+": "+text), append(t.details, m.Details...)
				if t.code == "" {
					t.code = m.Failed
				}
				continue
			}
			t.good = append(t.good, name)
		}
	}
	return t
}

func (t tally) finding(good, remedy string) Finding {
	f := Finding{Details: t.details,
		Figures: map[string]float64{"good": float64(len(t.good)), "bad": float64(len(t.wrong)),
			"not_tried": float64(len(t.left))}}
	switch {
	case len(t.wrong) > 0:
		f.Verdict, f.Reason, f.Remedy = Bad, list(append(t.wrong, t.left...)), remedy
	case len(t.good) == 0:
		f.Verdict, f.Reason, f.Remedy = NotApplicable, list(t.left), whenQuiet
	default:
		f.Verdict, f.Reason = Good, list(append([]string{good + ": " + strings.Join(t.good, ", ")}, t.left...))
	}
	return f
}

// JudgeShapes decides whether a VM of each shape ran.
func JudgeShapes(all []Machine) Finding {
	t := tallyOf(all, func(m Machine) string {
		if m.Failed != "" {
			return "failed" + because(m.Failed)
		}
		return ""
	})
	return t.finding("ran", remedyOf(t.code))
}

// JudgePins decides whether threads and memory of the VMs that ran are where they were planned.
func JudgePins(all []Machine) Finding {
	ran := slices.DeleteFunc(slices.Clone(all), func(m Machine) bool { return m.Failed != "" })
	if len(ran) == 0 {
		_, none := first(all)
		return *none
	}
	return tallyOf(ran, func(m Machine) string {
		switch {
		case m.Proof == "proven":
			return ""
		case m.Proof == "":
			return "its process was not found"
		case len(m.Problems) > 0:
			return m.Proof + " (" + strings.Join(m.Problems, ", ") + ")"
		}
		return m.Proof
	}).finding("proven from the kernel",
		"`grange tune verify` while a job runs says which thread or memory is elsewhere")
}

// JudgeTopology decides whether guests see what was planned.
func JudgeTopology(all []Machine) Finding {
	ran := slices.DeleteFunc(slices.Clone(all), func(m Machine) bool { return m.Failed != "" })
	if len(ran) == 0 {
		_, none := first(all)
		return *none
	}
	f := tallyOf(ran, func(m Machine) string {
		if m.Guest == nil {
			return ""
		}
		return strings.Join(m.Guest.Differs, ", ")
	}).finding("as planned", "`grange vm show` of such a job says what differs")
	mute := func(m Machine) bool { return m.ran() && m.Guest == nil }
	if f.Verdict == Good && slices.ContainsFunc(ran, mute) {
		f.Verdict, f.Reason = Warning, "guests have not reported what they see"
		f.Remedy = "build the image again: its grange-guest is older than this host's"
	}
	return f
}

// JudgePages decides whether a VM with huge pages ran, and has its memory in them.
func JudgePages(m Machine) Finding {
	size := m.Shape.PageSize
	switch {
	case m.Shape.Missing != "":
		return Finding{Verdict: NotApplicable, Reason: m.Shape.Missing,
			Remedy: "`grange tune plan` says whether this host should have pools"}
	case m.Shape.InUse != "" || m.Refused:
		return Finding{Verdict: NotApplicable, Reason: "its pages or CPUs are in use", Remedy: whenQuiet}
	case m.Failed != "":
		f := Failed(fmt.Sprintf("no VM with pages of %v was started", size), m.Failed)
		f.Details = m.Details
		f.Remedy = "`grange tune audit --rule hugetlbfs-unmounted`: libvirt finds pages by where they are mounted, " +
			"and looks when it starts; else " + f.Remedy
		return f
	case len(m.Plan.Cells) == 0 || m.Plan.Cells[0].PageSize != size:
		return Finding{Verdict: Bad, Reason: fmt.Sprintf("the VM was planned on other pages than %v", size),
			Remedy: "report it"}
	case m.Proof != "proven":
		return Finding{Verdict: Bad, Reason: "it runs, and is not proven to be where it was planned: " +
			m.Proof + " (" +
			strings.Join(m.Problems, ", ") + ")", Remedy: "`grange tune verify` while such a job runs"}
	}
	return Finding{Verdict: Good,
		Reason: fmt.Sprintf("%v of guest memory in pages of %v, on the node of its vCPU", m.Shape.Memory, size)}
}

// JudgeMemory decides whether a VM costs no more memory than the agent plans for.
func JudgeMemory(all []Machine) Finding {
	m, none := first(all)
	if none != nil {
		return *none
	}
	u := m.Memory
	if !u.Known {
		return Finding{Verdict: Warning, Reason: "the guest's memory cannot be distinguished from QEMU's own",
			Remedy: "report it with QEMU's version"}
	}
	f := Finding{Figures: map[string]float64{"overhead_bytes": float64(u.Overhead), "planned_bytes": float64(u.Need)}}
	f.Verdict = band(float64(u.Overhead), float64(u.Need), float64(u.Need))
	f.Reason = fmt.Sprintf("QEMU takes %v beside its guest's memory, of %v that are planned for", u.Overhead.Rounded(),
		u.Need.Rounded())
	if f.Verdict != Good {
		f.Remedy = "give batch jobs more memory, or they end for want of it; report it with QEMU's version"
	}
	return f
}
