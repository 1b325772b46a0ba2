package hostfacts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// domainXML is the part of libvirt's domain XML that an audit looks at. See https://libvirt.org/formatdomain.html.
type domainXML struct {
	Type     string `xml:"type,attr"`
	Name     string `xml:"name"`
	UUID     string `xml:"uuid"`
	Metadata struct {
		Ours   *struct{} `xml:"https://grange.dev/xmlns/vm/1 vm"` // see internal/hyper/libvirt
		OSInfo struct {
			OS struct {
				ID string `xml:"id,attr"`
			} `xml:"os"`
		} `xml:"http://libosinfo.org/xmlns/libvirt/domain/1.0 libosinfo"`
	} `xml:"metadata"`
	Memory  amountXML `xml:"memory"`
	Backing struct {
		HugePages *struct {
			Page []struct {
				Size    string `xml:"size,attr"`
				Unit    string `xml:"unit,attr"`
				NodeSet string `xml:"nodeset,attr"`
			} `xml:"page"`
		} `xml:"hugepages"`
		NoShare *struct{} `xml:"nosharepages"`
		Locked  *struct{} `xml:"locked"`
		Source  struct {
			Type string `xml:"type,attr"`
		} `xml:"source"`
		Access struct {
			Mode string `xml:"mode,attr"`
		} `xml:"access"`
	} `xml:"memoryBacking"`
	VCPU struct {
		Placement string `xml:"placement,attr"`
		CPUSet    string `xml:"cpuset,attr"`
		Count     string `xml:",chardata"`
	} `xml:"vcpu"`
	IOThreads string `xml:"iothreads"`
	Tune      struct {
		VCPU []struct {
			ID     string `xml:"vcpu,attr"`
			CPUSet string `xml:"cpuset,attr"`
		} `xml:"vcpupin"`
		Emulator *struct {
			CPUSet string `xml:"cpuset,attr"`
		} `xml:"emulatorpin"`
		IOThread []struct {
			ID     string `xml:"iothread,attr"`
			CPUSet string `xml:"cpuset,attr"`
		} `xml:"iothreadpin"`
		VCPUSched []struct {
			IDs       string `xml:"vcpus,attr"`
			Scheduler string `xml:"scheduler,attr"`
		} `xml:"vcpusched"`
		IOThreadSched []struct {
			IDs       string `xml:"iothreads,attr"`
			Scheduler string `xml:"scheduler,attr"`
		} `xml:"iothreadsched"`
		EmulatorSched struct {
			Scheduler string `xml:"scheduler,attr"`
		} `xml:"emulatorsched"`
	} `xml:"cputune"`
	NUMATune struct {
		Memory *struct {
			Placement string `xml:"placement,attr"`
			Mode      string `xml:"mode,attr"`
			NodeSet   string `xml:"nodeset,attr"`
		} `xml:"memory"`
		Node []struct {
			Cell    string `xml:"cellid,attr"`
			Mode    string `xml:"mode,attr"`
			NodeSet string `xml:"nodeset,attr"`
		} `xml:"memnode"`
	} `xml:"numatune"`
	OS struct {
		Type struct {
			Machine string `xml:"machine,attr"`
		} `xml:"type"`
	} `xml:"os"`
	Features struct {
		PVSpinlock stateXML `xml:"pvspinlock"`
		KVM        struct {
			Hint stateXML `xml:"hint-dedicated"`
			Poll stateXML `xml:"poll-control"`
		} `xml:"kvm"`
	} `xml:"features"`
	CPU struct {
		Mode       string `xml:"mode,attr"`
		Migratable string `xml:"migratable,attr"`
		Model      string `xml:"model"`
		Cache      struct {
			Mode string `xml:"mode,attr"`
		} `xml:"cache"`
		Features []struct {
			Name   string `xml:"name,attr"`
			Policy string `xml:"policy,attr"`
		} `xml:"feature"`
		Topology *struct {
			Sockets string `xml:"sockets,attr"`
			Dies    string `xml:"dies,attr"`
			Cores   string `xml:"cores,attr"`
			Threads string `xml:"threads,attr"`
		} `xml:"topology"`
		Cells []struct {
			ID     string `xml:"id,attr"`
			CPUs   string `xml:"cpus,attr"`
			Memory string `xml:"memory,attr"`
			Unit   string `xml:"unit,attr"`
		} `xml:"numa>cell"`
	} `xml:"cpu"`
	Timers []struct {
		Name    string `xml:"name,attr"`
		Present string `xml:"present,attr"`
	} `xml:"clock>timer"`
	Devices struct {
		Disks      []diskXML `xml:"disk"`
		Interfaces []nicXML  `xml:"interface"`
		Balloon    struct {
			Model string `xml:"model,attr"`
		} `xml:"memballoon"`
	} `xml:"devices"`

	advice adviceXML // of a running VM, from the <domstatus> around it
}

// adviceXML is numad's advice, which libvirt took when the VM was started.
type adviceXML struct {
	NodeSet string `xml:"nodeset,attr"`
	CPUSet  string `xml:"cpuset,attr"`
}

type stateXML struct {
	State string `xml:"state,attr"`
}

type amountXML struct {
	Unit  string `xml:"unit,attr"`
	Value string `xml:",chardata"`
}

type diskXML struct {
	Device string `xml:"device,attr"`
	Driver struct {
		Type     string `xml:"type,attr"`
		Cache    string `xml:"cache,attr"`
		IO       string `xml:"io,attr"`
		Discard  string `xml:"discard,attr"`
		Queues   string `xml:"queues,attr"`
		IOThread string `xml:"iothread,attr"`
	} `xml:"driver"`
	Source struct {
		File   string `xml:"file,attr"`
		Dev    string `xml:"dev,attr"`
		Pool   string `xml:"pool,attr"`
		Volume string `xml:"volume,attr"`
		Name   string `xml:"name,attr"`
	} `xml:"source"`
	Backing *struct {
		Type string `xml:"type,attr"`
	} `xml:"backingStore"`
	Target struct {
		Dev string `xml:"dev,attr"`
		Bus string `xml:"bus,attr"`
	} `xml:"target"`
	ReadOnly *struct{} `xml:"readonly"`
}

type nicXML struct {
	Type   string `xml:"type,attr"`
	Source struct {
		Bridge string `xml:"bridge,attr"`
		Dev    string `xml:"dev,attr"`
	} `xml:"source"`
	Model struct {
		Type string `xml:"type,attr"`
	} `xml:"model"`
	Driver struct {
		Queues string `xml:"queues,attr"`
	} `xml:"driver"`
}

// strictMode is libvirt's default for a binding of memory.
const strictMode = "strict"

// converter remembers the first thing in a domain that libvirt could not have written.
type converter struct{ err error }

func (x *domainXML) domain() (farm.Domain, error) {
	var c converter
	d := farm.Domain{Name: x.Name, UUID: strings.ToLower(strings.TrimSpace(x.UUID)), Ours: x.Metadata.Ours != nil,
		Type: x.Type, Machine: x.OS.Type.Machine, OSInfo: x.Metadata.OSInfo.OS.ID, VCPUs: c.number(x.VCPU.Count),
		Memory: c.amount(x.Memory.Value, x.Memory.Unit), CPUMode: x.CPU.Mode, CPUModel: strings.TrimSpace(x.CPU.Model),
		CPUCache: x.CPU.Cache.Mode, Migratable: x.CPU.Migratable,
		NoShare: x.Backing.NoShare != nil, Locked: x.Backing.Locked != nil,
		Balloon: x.Devices.Balloon.Model, PVSpinlock: x.Features.PVSpinlock.State,
		PollControl: x.Features.KVM.Poll.State, HintDedicated: x.Features.KVM.Hint.State}
	if d.Name == "" || d.VCPUs == 0 {
		return farm.Domain{}, fmt.Errorf("a domain without a name or without vCPUs")
	}
	if t := x.CPU.Topology; t != nil {
		d.Guest = farm.GuestTopology{Sockets: c.number(t.Sockets), Cores: max(c.number(t.Dies), 1) * c.number(t.Cores),
			Threads: c.number(t.Threads)}
	}
	for _, cell := range x.CPU.Cells {
		d.Cells = append(d.Cells, farm.DomainCell{VCPUs: c.set(cell.CPUs), Memory: c.amount(cell.Memory, cell.Unit)})
	}
	for _, f := range x.CPU.Features {
		if d.CPUFeatures == nil {
			d.CPUFeatures = map[string]string{}
		}
		d.CPUFeatures[f.Name] = cmp.Or(f.Policy, "require") // libvirt's default
	}
	d.VCPUAuto, d.MemoryAuto = x.auto()
	x.pins(&d, &c)
	x.schedulers(&d, &c)
	x.memory(&d, &c)
	x.devices(&d, &c)
	for _, t := range x.Timers {
		if d.Timers == nil {
			d.Timers = map[string]string{}
		}
		d.Timers[t.Name] = t.Present
	}
	return d, c.err
}

// auto reports whether numad advises the vCPUs' CPUs and the memory's nodes. The placement of <vcpu> and of <numatune>
// each follows the other's where only that one is written, and nothing places its part by hand.
func (x *domainXML) auto() (vcpus, memory bool) {
	const auto = "auto"
	vcpus = x.VCPU.Placement == auto
	m := x.NUMATune.Memory
	if m == nil {
		return vcpus, vcpus && len(x.NUMATune.Node) == 0
	}
	memory = m.Placement == auto || m.Placement == "" && m.NodeSet == "" && vcpus
	byHand := x.VCPU.CPUSet != "" || len(x.Tune.VCPU)+len(x.Tune.IOThread) > 0 || x.Tune.Emulator != nil
	return vcpus || memory && !byHand, memory
}

// pins fills in where each thread may run. The cpuset of <vcpu> is for all that have none of their own. libvirt ignores
// it where numad advises.
func (x *domainXML) pins(d *farm.Domain, c *converter) {
	d.IOThreads = c.number(x.IOThreads)
	all := c.set(x.VCPU.CPUSet)
	if d.VCPUAuto {
		all = c.set(x.advice.CPUSet)
	}
	d.EmulatorPin = all
	if x.Tune.Emulator != nil {
		d.EmulatorPin = c.set(x.Tune.Emulator.CPUSet)
	}
	d.VCPUPins, d.IOThreadPins = map[int]farm.CPUSet{}, map[int]farm.CPUSet{}
	if !all.Empty() {
		for vcpu := range d.VCPUs {
			d.VCPUPins[vcpu] = all
		}
	}
	for _, p := range x.Tune.VCPU {
		if id := c.number(p.ID); id < d.VCPUs {
			d.VCPUPins[id] = c.set(p.CPUSet)
		}
	}
	for _, p := range x.Tune.IOThread {
		d.IOThreadPins[c.number(p.ID)] = c.set(p.CPUSet)
	}
}

// schedulers fills in which threads have a scheduler of their own.
func (x *domainXML) schedulers(d *farm.Domain, c *converter) {
	d.EmulatorSched = x.Tune.EmulatorSched.Scheduler
	for _, s := range x.Tune.VCPUSched {
		for id := range c.set(s.IDs).All() {
			if d.VCPUSched == nil {
				d.VCPUSched = map[int]string{}
			}
			d.VCPUSched[id] = s.Scheduler
		}
	}
	for _, s := range x.Tune.IOThreadSched {
		for id := range c.set(s.IDs).All() {
			if d.IOThreadSched == nil {
				d.IOThreadSched = map[int]string{}
			}
			d.IOThreadSched[id] = s.Scheduler
		}
	}
}

// memory fills in binding and backing. Guest cells that are bound one by one count together for the whole VM. libvirt
// ignores the nodeset where numad advises.
func (x *domainXML) memory(d *farm.Domain, c *converter) {
	for _, m := range x.NUMATune.Node {
		if id := c.number(m.Cell); id < len(d.Cells) {
			d.Cells[id].Nodes, d.Cells[id].Mode = c.set(m.NodeSet), cmp.Or(m.Mode, strictMode)
		}
	}
	m := x.NUMATune.Memory
	switch {
	case d.MemoryAuto:
		d.MemoryMode, d.MemoryNodes = strictMode, c.set(x.advice.NodeSet)
		if m != nil {
			d.MemoryMode = cmp.Or(m.Mode, strictMode)
		}
		d.WholeBound = !d.MemoryNodes.Empty()
	case m != nil:
		d.MemoryMode, d.MemoryNodes = cmp.Or(m.Mode, strictMode), c.set(m.NodeSet)
		d.WholeBound = !d.MemoryNodes.Empty()
	default:
		for _, m := range x.NUMATune.Node {
			d.MemoryMode, d.MemoryNodes = cmp.Or(m.Mode, strictMode), d.MemoryNodes.Or(c.set(m.NodeSet))
		}
	}
	d.MemorySource, d.MemoryShared = x.Backing.Source.Type, x.Backing.Access.Mode == "shared"
	if x.Backing.HugePages == nil {
		return
	}
	d.HugePages = true
	for _, p := range x.Backing.HugePages.Page {
		d.Pages = append(d.Pages, farm.DomainPages{Size: c.amount(p.Size, p.Unit), Cells: c.set(p.NodeSet)})
	}
}

func (x *domainXML) devices(d *farm.Domain, c *converter) {
	for _, v := range x.Devices.Disks {
		disk := farm.DomainDisk{Target: v.Target.Dev, Bus: v.Target.Bus, Format: v.Driver.Type, Cache: v.Driver.Cache,
			IO: v.Driver.IO, Discard: v.Driver.Discard, Path: v.Source.File, Device: v.Device,
			ReadOnly: v.ReadOnly != nil, Queues: c.number(v.Driver.Queues), IOThread: c.number(v.Driver.IOThread),
			Backing: v.Backing != nil && v.Backing.Type != ""}
		switch {
		case disk.Path != "":
		case v.Source.Dev != "":
			disk.Path = v.Source.Dev
		case v.Source.Pool != "":
			disk.Path = v.Source.Pool + "/" + v.Source.Volume
		default:
			disk.Path = v.Source.Name
		}
		if disk.Device == "" {
			disk.Device = "disk" // libvirt's default
		}
		d.Disks = append(d.Disks, disk)
	}
	for _, n := range x.Devices.Interfaces {
		d.NICs = append(d.NICs, farm.DomainNIC{Model: n.Model.Type, Kind: n.Type,
			Source: cmp.Or(n.Source.Bridge, n.Source.Dev), Queues: c.number(n.Driver.Queues)})
	}
}

func (c *converter) fail(what, text string) {
	if c.err == nil {
		c.err = fmt.Errorf("%q is not %s", hosttree.Cut(text), what)
	}
}

// number reads a count; 0 where there is none.
func (c *converter) number(text string) int {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > hosttree.MaxCPUs {
		c.fail("a count", text)
		return 0
	}
	return int(n)
}

// set reads libvirt's lists, which may take numbers out again: "0-7,^3".
func (c *converter) set(text string) farm.CPUSet {
	var out farm.CPUSet
	for part := range strings.SplitSeq(strings.ReplaceAll(text, " ", ""), ",") {
		part, less := strings.CutPrefix(part, "^")
		set, ok := hosttree.ParseList(part)
		switch {
		case !ok:
			c.fail("a CPU list", text)
			return farm.CPUSet{}
		case less:
			out = out.Minus(set)
		default:
			out = out.Or(set)
		}
	}
	return out
}

// amount reads memory in libvirt's units, KiB where none is given.
func (c *converter) amount(text, unit string) farm.Bytes {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	size := uint64(1024)
	if unit != "" {
		size = memoryUnit(unit)
	}
	if err != nil || size == 0 || n > 1<<56/size {
		c.fail("an amount of memory", text+" "+unit)
		return 0
	}
	return farm.Bytes(n * size)
}

// memoryUnit is libvirt's: "KB" is 1000, "K" and "KiB" are 1024; 0 where it knows none of the name.
func memoryUnit(unit string) uint64 {
	switch unit {
	case "b", "byte", "bytes":
		return 1
	}
	power := strings.IndexByte("KMGTP", strings.ToUpper(unit)[0])
	base := map[string]uint64{"": 1024, "IB": 1024, "B": 1000}[strings.ToUpper(unit[1:])]
	if power < 0 || base == 0 {
		return 0
	}
	size := base
	for range power {
		size *= base
	}
	return size
}
