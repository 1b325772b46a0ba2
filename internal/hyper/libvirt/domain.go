package libvirt

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"os"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// namespace marks our metadata in a domain's XML. A changed meaning gets a new number.
const namespace = "https://grange.dev/xmlns/vm/1"

// host is what the domain XML depends on besides the machine.
type host struct {
	accel  Accelerator
	whyTCG string // why KVM is not used; empty when nobody wanted it
	label  string // DAC label of QEMU, "+uid:+gid"; empty when libvirt does not say
	numa   bool   // libvirt knows memory nodes, so memory can be bound
	qboot  string // path of the qboot firmware; empty where it is not installed
}

// qbootPaths are where distributions put qboot. It knows no disks and no boot menus: it hands over to a kernel that QEMU loaded,
// 90 ms sooner than SeaBIOS does under emulation (20 boots in turns, medians 1570 and 1660 ms to user space).
var qbootPaths = []string{"/usr/share/qemu/qboot.rom", "/usr/share/qemu-kvm/qboot.rom"}

func findQboot() string {
	for _, path := range qbootPaths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// domain writes the machine as libvirt's domain XML. It is pure.
func (h host) domain(m hyper.Machine) (string, hyper.Applied, error) {
	if err := m.Check(); err != nil {
		return "", hyper.Applied{}, err
	}
	applied := hyper.Applied{Accelerator: string(h.accel)}
	warn := func(format string, args ...any) {
		applied.Warnings = append(applied.Warnings, fmt.Sprintf(format, args...))
	}

	d := libvirtxml.Domain{
		Name:     m.Name,
		UUID:     m.ID,
		Metadata: &libvirtxml.DomainMetadata{XML: metadataXML(m.Metadata)},
		Memory:   &libvirtxml.DomainMemory{Value: kib(m.Plan.Memory()), Unit: "KiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: uint(len(m.Plan.VCPUs))},
		OS: &libvirtxml.DomainOS{
			// On pc the guest asks ACPI to route each device's interrupt, which takes an emulated guest 120 ms for the first.
			Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"},
			Kernel: m.Boot.Kernel, Initrd: m.Boot.Initrd, Cmdline: m.Boot.Cmdline,
		},
		Features: &libvirtxml.DomainFeatureList{
			ACPI:   &libvirtxml.DomainFeature{},
			APIC:   &libvirtxml.DomainFeatureAPIC{},
			VMPort: &libvirtxml.DomainFeatureState{State: "off"},
		},
		Clock:      &libvirtxml.DomainClock{Offset: "utc", Timer: []libvirtxml.DomainTimer{{Name: "hpet", Present: "no"}}},
		OnPoweroff: "destroy", OnReboot: "destroy", OnCrash: "destroy",
		PM: &libvirtxml.DomainPM{
			SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
			SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
		},
		// Pages that the kernel would merge between machines cost CPU time and leak what a neighbour runs.
		MemoryBacking: &libvirtxml.DomainMemoryBacking{MemoryNosharepages: &libvirtxml.DomainMemoryNosharepages{}},
		IOThreads:     1,
		Devices:       devices(m),
	}
	if m.Boot.Kernel == "" {
		d.OS.BootDevices = []libvirtxml.DomainBootDevice{{Dev: "hd"}}
	}
	if m.Boot.Kernel != "" && h.qboot != "" {
		d.OS.Loader = &libvirtxml.DomainLoader{Path: h.qboot, Readonly: "yes", Type: "rom"}
	}
	g := m.Plan.Guest
	d.CPU = &libvirtxml.DomainCPU{
		Check:    "none",
		Topology: &libvirtxml.DomainCPUTopology{Sockets: g.Sockets, Cores: g.Cores, Threads: g.Threads},
		Numa:     &libvirtxml.DomainNuma{},
	}
	if h.accel == KVM {
		d.Type, d.CPU.Mode, d.CPU.Migratable = "kvm", "host-passthrough", "off"
		d.Clock.Timer = append(d.Clock.Timer,
			libvirtxml.DomainTimer{Name: "rtc", TickPolicy: "catchup"},
			libvirtxml.DomainTimer{Name: "pit", TickPolicy: "delay"},
			libvirtxml.DomainTimer{Name: "kvmclock", Present: "yes"})
	} else {
		d.Type, d.CPU.Mode = "qemu", "maximum"
		// A fifth level of page tables makes every emulated walk longer, and no machine here needs 64 TiB: 8 % of a boot.
		d.CPU.Features = []libvirtxml.DomainCPUFeature{{Policy: "disable", Name: "la57"}}
		if h.whyTCG != "" {
			warn("software emulation instead of KVM, many times slower: %s", h.whyTCG)
			warn("CPU mode maximum instead of host-passthrough: software emulation cannot pass the host's CPU through")
		}
	}
	applied.CPUMode = d.CPU.Mode
	tuneCPUs(&d, m.Plan)
	h.tuneMemory(&d, m.Plan, warn)
	if h.label != "" {
		d.SecLabel = []libvirtxml.DomainSecLabel{{Type: "static", Model: "dac", Relabel: "no", Label: h.label}}
	}
	text, err := d.Marshal()
	if err != nil {
		return "", hyper.Applied{}, fmt.Errorf("write domain XML of machine %s: %w", m.ID, err)
	}
	return text, applied, nil
}

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
		tune.IOThreadPin = []libvirtxml.DomainCPUTuneIOThreadPin{{IOThread: 1, CPUSet: p.IOThread.String()}}
	}
	if tune.VCPUPin != nil || tune.EmulatorPin != nil || tune.IOThreadPin != nil {
		d.CPUTune = &tune
	}
}

func (h host) tuneMemory(d *libvirtxml.Domain, p farm.Plan, warn func(string, ...any)) {
	bind := h.numa
	var nodes []int
	tune := &libvirtxml.DomainNUMATune{}
	pages := map[farm.Bytes][]int{}
	for i, c := range p.Cells {
		id := uint(i)
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: c.VCPUs.String(), Memory: kib(c.Memory), Unit: "KiB",
		})
		nodes = append(nodes, c.Node)
		tune.MemNodes = append(tune.MemNodes, libvirtxml.DomainNUMATuneMemNode{CellID: id, Mode: "strict", Nodeset: fmt.Sprint(c.Node)})
		if c.PageSize != 0 {
			pages[c.PageSize] = append(pages[c.PageSize], i)
		}
	}
	if bind {
		tune.Memory = &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: farm.NewCPUSet(nodes...).String()}
		d.NUMATune = tune
	} else {
		warn("memory is not bound to node %s: this host's libvirt knows no memory nodes", farm.NewCPUSet(nodes...))
	}
	if len(pages) > 0 {
		huge := &libvirtxml.DomainMemoryHugepages{}
		for _, size := range sortedSizes(pages) {
			huge.Hugepages = append(huge.Hugepages, libvirtxml.DomainMemoryHugepage{
				Size: kib(size), Unit: "KiB", Nodeset: farm.NewCPUSet(pages[size]...).String(),
			})
		}
		d.MemoryBacking.MemoryHugePages = huge
	}
}

func devices(m hyper.Machine) *libvirtxml.DomainDeviceList {
	first := uint(0)
	l := &libvirtxml.DomainDeviceList{
		Controllers: []libvirtxml.DomainController{{Type: "usb", Index: &first, Model: "none"}},
		MemBalloon:  &libvirtxml.DomainMemBalloon{Model: "none"},
	}
	if m.Console != "" {
		l.Serials = []libvirtxml.DomainSerial{{Source: listen(m.Console)}}
	}
	for i, disk := range m.Disks {
		l.Disks = append(l.Disks, diskXML(i, disk, len(m.Plan.VCPUs)))
	}
	if len(m.Ports) > 0 {
		// A guest sets up two queues for every port that could be, not for those there are: 31 by default.
		n := uint(len(m.Ports) + 1) // libvirt keeps port 0 for consoles
		l.Controllers = append(l.Controllers, libvirtxml.DomainController{
			Type: "virtio-serial", Index: &first, VirtIOSerial: &libvirtxml.DomainControllerVirtIOSerial{Ports: &n},
		})
	}
	if m.Network == farm.NetworkUser {
		l.Interfaces = []libvirtxml.DomainInterface{{
			Source: &libvirtxml.DomainInterfaceSource{User: &libvirtxml.DomainInterfaceSourceUser{}},
			Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
			ROM:    &libvirtxml.DomainROM{Enabled: "no"}, // nobody boots from the network; the firmware need not look
		}}
	}
	for _, port := range m.Ports {
		l.Channels = append(l.Channels, libvirtxml.DomainChannel{
			Source: listen(port.Path),
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: port.Name}},
		})
	}
	placeOnRoot(l)
	return l
}

// placeOnRoot puts every device on the root bus. By itself libvirt gives each a bridge of its own, for hot-plug, and firmware
// and guest look behind every bridge. The root bus has slots 1 to 30 to give; what does not fit gets its bridge.
func placeOnRoot(l *libvirtxml.DomainDeviceList) {
	const last = 30
	slot := uint(0)
	next := func() *libvirtxml.DomainAddress {
		if slot++; slot > last {
			return nil
		}
		zero, at := uint(0), slot
		return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Domain: &zero, Bus: &zero, Slot: &at, Function: &zero}}
	}
	for i := range l.Controllers {
		if l.Controllers[i].Type == "virtio-serial" {
			l.Controllers[i].Address = next()
		}
	}
	for i := range l.Interfaces {
		l.Interfaces[i].Address = next()
	}
	for i := range l.Disks {
		l.Disks[i].Address = next()
	}
}

// diskXML makes every disk a virtio disk, a seed ISO too: guests find it by its label, and an emulated CD drive costs boot time.
func diskXML(i int, disk hyper.Disk, vcpus int) libvirtxml.DomainDisk {
	one, queues := uint(1), uint(vcpus)
	x := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: disk.Format, Cache: "writeback", IOThread: &one, Queues: &queues},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk.Path}},
		Target: &libvirtxml.DomainDiskTarget{Dev: diskName(i), Bus: "virtio"},
		Serial: disk.Serial,
	}
	if disk.ReadOnly || disk.CDROM {
		x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	} else {
		x.Driver.Discard = "unmap" // what a job deletes goes back to the host's file system
	}
	return x
}

// diskName is vda, vdb, … vdz, vdaa: libvirt wants a name; guests use serials.
func diskName(i int) string {
	s := ""
	for i++; i > 0; i = (i - 1) / 26 {
		s = string(rune('a'+(i-1)%26)) + s
	}
	return "vd" + s
}

func listen(path string) *libvirtxml.DomainChardevSource {
	return &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path}}
}

func kib(b farm.Bytes) uint { return uint(b / farm.KiB) }

func sortedSizes(pages map[farm.Bytes][]int) []farm.Bytes {
	var sizes []farm.Bytes
	for size := range pages {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}

// metadataXML wraps the caller's bytes. Base64, for libvirt rewrites XML and we promise the same bytes back.
func metadataXML(data []byte) string {
	return `<grange:vm xmlns:grange="` + namespace + `">` + base64.StdEncoding.EncodeToString(data) + `</grange:vm>`
}

// describe reads a domain's sockets and our metadata, which is nil when the domain is not ours.
func describe(text string) (sockets []string, metadata []byte, err error) {
	type source struct {
		Path string `xml:"path,attr"`
	}
	var d struct {
		VM struct {
			Text *string `xml:"https://grange.dev/xmlns/vm/1 vm"`
		} `xml:"metadata"`
		Channels []source `xml:"devices>channel>source"`
		Serials  []source `xml:"devices>serial>source"`
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return nil, nil, fmt.Errorf("read domain XML: %w", err)
	}
	for _, s := range append(d.Serials, d.Channels...) {
		if s.Path != "" {
			sockets = append(sockets, s.Path)
		}
	}
	if d.VM.Text == nil {
		return sockets, nil, nil
	}
	metadata, err = base64.StdEncoding.AppendDecode([]byte{}, []byte(*d.VM.Text))
	if err != nil {
		return nil, nil, fmt.Errorf("read our metadata in domain XML: %w", err)
	}
	return sockets, metadata, nil
}
