package libvirt

import (
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// CPU modes of libvirt.
const (
	passthrough = "host-passthrough"
	hostModel   = "host-model"
	custom      = "custom"
	maximum     = "maximum"
)

// hintsAnyCPU is a version of libvirt that takes hint-dedicated with any CPU mode; those of 2020 and 2021 refuse a
// domain that has it with another than host-passthrough.
const hintsAnyCPU = 9_000_000

// listsPerDomain is the oldest version of libvirt where fewerQuestions was seen to do what it says.
const listsPerDomain = 9_000_000

// fewerQuestions has libvirt read the features of the guest's CPU as two lists. By itself it asks QEMU for each feature
// there is, some hundreds, one after the other: more than half of its part of a start. It does that where QEMU names
// unavailable features, which a machine may be said to lack. Then libvirt refuses a CPU that names features which are
// bits of MSRs, and does not know what a model that it finds itself consists of; so this is for the mode that passes
// all through, and names none.
func (h host) fewerQuestions(d *libvirtxml.Domain) {
	if h.lists && (d.CPU.Mode == passthrough || d.CPU.Mode == maximum) {
		d.QEMUCapabilities =
			&libvirtxml.DomainQEMUCapabilities{Del: []libvirtxml.DomainQEMUCapabilitiesEntry{{Name: "cpu-unavailable-features"}}}
	}
}

// processor reports what CPU the guest sees, how its vCPUs are laid out, and what it should know of the host's
// scheduling.
func (h host) processor(d *libvirtxml.Domain, m hyper.Machine, warn func(string, ...any)) {
	g := m.Plan.Guest
	d.CPU = &libvirtxml.DomainCPU{
		Check:    "none",
		Topology: &libvirtxml.DomainCPUTopology{Sockets: g.Sockets, Cores: g.Cores, Threads: g.Threads},
		Numa:     &libvirtxml.DomainNuma{},
	}
	mode, model := wantedCPU(m)
	if h.accel != KVM {
		h.emulated(d, m, mode, model, warn)
		return
	}
	d.Type, d.CPU.Mode = "kvm", mode
	switch mode {
	case passthrough:
		// with it the guest would lose what cannot be moved, a TSC that never changes its pace above all
		d.CPU.Migratable = "off"
	case custom:
		// The guest gets this model or does not start: what was compiled for it would die of missing instructions
		// later.
		d.CPU.Match, d.CPU.Model = "exact", &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: model}
		d.CPU.Check = "partial"
	case hostModel:
		d.CPU.Check = "partial"
	}
	if wantsTopoext(h.hardware.CPU, g) {
		d.CPU.Features = append(d.CPU.Features, libvirtxml.DomainCPUFeature{Policy: "require", Name: topoext})
	}
	if mode == passthrough && sharesAlike(h.hardware, m.Plan) {
		d.CPU.Cache = &libvirtxml.DomainCPUCache{Mode: "passthrough"}
	}
	d.Clock.Timer = append(d.Clock.Timer,
		libvirtxml.DomainTimer{Name: "rtc", TickPolicy: "catchup"},
		libvirtxml.DomainTimer{Name: "pit", TickPolicy: "delay"},
		libvirtxml.DomainTimer{Name: "kvmclock", Present: "yes"})
	if dedicated(m.Plan) {
		// Each vCPU has its CPU to itself: the guest may spin on a lock and wait for work without leaving it, for
		// nobody else waits.
		d.Features.PVSpinlock = &libvirtxml.DomainFeatureState{State: "off"}
		d.Features.KVM = &libvirtxml.DomainFeatureKVM{PollControl: &libvirtxml.DomainFeatureState{State: "on"}}
		if h.hints || mode == passthrough {
			d.Features.KVM.HintDedicated = &libvirtxml.DomainFeatureState{State: "on"}
		}
	}
}

// dedicated reports whether each vCPU has a host CPU to itself, and no VM shares any of them.
func dedicated(p farm.Plan) bool {
	return p.Floating.Empty() && !slices.ContainsFunc(p.VCPUs, func(cpus farm.CPUSet) bool { return cpus.Len() != 1 })
}

// topoext is AMD's feature by which a guest counts the threads of a core (CPUID leaf 0x8000001E).
const topoext = "topoext"

// wantsTopoext reports whether the guest sees its threads only when it has topoext. QEMU never turns that on by itself
// with the host's CPU: the guest would take each thread for a core. A processor without it, and Intel's, tell the guest
// otherwise.
func wantsTopoext(cpu farm.CPUModel, g farm.GuestTopology) bool {
	amd := cpu.Vendor == "AuthenticAMD" || cpu.Vendor == "HygonGenuine"
	return amd && g.Threads > 1 && slices.Contains(cpu.Flags, topoext)
}

// wantedCPU is the CPU mode that the machine asks for, and the model where that is custom.
func wantedCPU(m hyper.Machine) (mode, model string) {
	switch m.CPUModel {
	case "":
		if m.Purpose == farm.PurposeService {
			return hostModel, "" // the newest named model that this host has: others that have it can take the VM
		}
		return passthrough, ""
	case passthrough, hostModel, maximum:
		return m.CPUModel, ""
	}
	return custom, m.CPUModel
}

// emulated is the CPU of software emulation: all that QEMU can do. It says so where somebody wanted another.
func (h host) emulated(d *libvirtxml.Domain, m hyper.Machine, mode, model string, warn func(string, ...any)) {
	d.Type, d.CPU.Mode = "qemu", maximum
	// A fifth level of page tables makes every emulated walk longer, and no machine here needs 64 TiB: 8 % of a boot.
	d.CPU.Features = []libvirtxml.DomainCPUFeature{{Policy: "disable", Name: "la57"}}
	if h.whyTCG != "" {
		warn("software emulation instead of KVM, many times slower: %s", h.whyTCG)
	}
	switch {
	case mode == maximum || h.whyTCG == "" && m.CPUModel == "": // nobody wanted another
	case mode == passthrough:
		warn("CPU mode maximum instead of host-passthrough: software emulation cannot pass the host's CPU through")
	case mode == custom:
		warn("CPU mode maximum instead of model %s: software emulation has only some of its instructions, and others "+
			"beside", model)
	default:
		warn("CPU mode maximum instead of %s: software emulation cannot do all that the host's CPU can", mode)
	}
}

// tuneCPUs pins threads. A vCPU that floats has the whole pool that it shares.
func tuneCPUs(d *libvirtxml.Domain, p farm.Plan) {
	var tune libvirtxml.DomainCPUTune
	for i, cpus := range p.VCPUs {
		if !cpus.Empty() {
			tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: cpus.String()})
		}
	}
	if !p.Emulator.Empty() {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: p.Emulator.String()}
	}
	if !p.IOThread.Empty() {
		for n := range d.IOThreads {
			pin := libvirtxml.DomainCPUTuneIOThreadPin{IOThread: n + 1, CPUSet: p.IOThread.String()}
			tune.IOThreadPin = append(tune.IOThreadPin, pin)
		}
	}
	if tune.VCPUPin != nil || tune.EmulatorPin != nil || tune.IOThreadPin != nil {
		d.CPUTune = &tune
	}
}
