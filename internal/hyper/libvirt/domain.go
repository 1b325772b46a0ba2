package libvirt

import (
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// namespace marks our metadata in a domain's XML. A changed meaning gets a new number.
const namespace = "https://grange.dev/xmlns/vm/1"

// host is what the domain XML depends on besides the machine.
type host struct {
	accel    Accelerator
	whyTCG   string   // why KVM is not used; empty when nobody wanted it
	kvm      bool     // libvirt offers it
	emulator string   // QEMU's program; empty when libvirt does not say
	models   []string // of sVirt: "apparmor", "selinux"
	// noProfile is why libvirt makes the AppArmor profiles of machines; "": the agent does.
	noProfile string
	label     string // DAC label of QEMU, "+uid:+gid"; empty when libvirt does not say
	numa      bool   // libvirt knows memory nodes, so memory can be bound
	// distance is the host's SLIT by node ID, as far as libvirt knows it.
	distance map[int]map[int]int
	hardware farm.Topology // zero where it cannot be read
	hints    bool          // libvirt takes hint-dedicated with any CPU mode
	qboot    string        // path of the qboot firmware; empty where it is not installed
	ovmf     string        // of UEFI; empty where it is not installed
	lists    bool          // libvirt's list of QEMU's capabilities can be shortened for one machine
}

// domain writes the machine as libvirt's domain XML. It is pure.
func (h host) domain(m hyper.Machine) (string, hyper.Applied, error) {
	if err := m.Check(); err != nil {
		return "", hyper.Applied{}, err
	}
	applied := hyper.Applied{Accelerator: string(h.accel), Emulated: h.whyTCG}
	warn := func(format string, args ...any) {
		applied.Warnings = append(applied.Warnings, fmt.Sprintf(format, args...))
	}

	if _, ok := cards[m.Card.Type]; !ok && m.Card.Type != hyper.NoCard {
		return "", applied, &farm.Error{Kind: farm.Invalid, Code: hyper.CodeBadMachine,
			Message: fmt.Sprintf("machine %s: has a card of the type %q", m.Name, m.Card.Type)}
	}
	d := libvirtxml.Domain{
		Name:     m.Name,
		UUID:     m.ID,
		Metadata: &libvirtxml.DomainMetadata{XML: metadataXML(m.Metadata)},
		Memory:   &libvirtxml.DomainMemory{Value: kib(m.Plan.Memory()), Unit: "KiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: uint(len(m.Plan.VCPUs))},
		OS: &libvirtxml.DomainOS{
			// On pc the guest asks ACPI to route each device's interrupt, which takes an emulated guest 120 ms for the
			// first.
			Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"},
			Kernel: m.Boot.Kernel, Initrd: m.Boot.Initrd, Cmdline: m.Boot.Cmdline,
		},
		Features: &libvirtxml.DomainFeatureList{
			ACPI:   &libvirtxml.DomainFeature{},
			APIC:   &libvirtxml.DomainFeatureAPIC{},
			VMPort: &libvirtxml.DomainFeatureState{State: "off"},
		},
		Clock: &libvirtxml.DomainClock{Offset: "utc",
			Timer: []libvirtxml.DomainTimer{{Name: "hpet", Present: "no"}}},
		OnPoweroff: "destroy", OnReboot: "destroy", OnCrash: "destroy",
		PM: &libvirtxml.DomainPM{
			SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
			SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
		},
		IOThreads: uint(ioThreads(m)),
		Devices:   devices(m),
	}
	d.Devices.Emulator = h.emulator // the one that its process is known by
	if m.Reboots {
		d.OnReboot = "restart"
	}
	if h.accel == TCG {
		d.Features.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB",
			Size: uint(farm.TranslationCache / farm.MiB)}}
	}
	if m.Boot.Kernel == "" {
		d.OS.BootDevices = []libvirtxml.DomainBootDevice{{Dev: "hd"}}
	}
	if err := h.firmware(&d, m); err != nil {
		return "", applied, err
	}
	h.processor(&d, m, warn)
	h.fewerQuestions(&d)
	applied.CPUMode = d.CPU.Mode
	if d.CPU.Model != nil {
		applied.CPUModel = d.CPU.Model.Value
	}
	if len(m.Disks) > 0 {
		applied.Cache, applied.IO = diskMode(m)
		if m.Purpose == farm.PurposeService && !pastPageCache(applied.Cache) {
			warn("the disks are cached by the host (%s), which stands in the way of moving the VM to another host: "+
				"use the cache mode none for VMs that may be moved", applied.Cache)
		}
	}
	tuneCPUs(&d, m.Plan)
	h.memory(&d, m, warn)
	h.secure(&d, m, warn)
	text, err := d.Marshal()
	if err != nil {
		return "", hyper.Applied{}, fmt.Errorf("write domain XML of machine %s: %w", m.ID, err)
	}
	return text, applied, nil
}

// secure reports whom QEMU runs as, and what confines it.
func (h host) secure(d *libvirtxml.Domain, m hyper.Machine, warn func(string, ...any)) {
	static := func(model, label string) {
		d.SecLabel = append(d.SecLabel, libvirtxml.DomainSecLabel{Type: "static", Model: model, Relabel: "no",
			Label: label})
	}
	if label := h.dacLabel(m.UID, m.Group); label != "" {
		static("dac", label)
	}
	switch {
	case h.ownProfile():
		static(appArmor, profileName(m.ID))
	case h.confines():
		warn("libvirt makes the machine's AppArmor profile, which takes seconds and leaves a file in "+
			"/etc/apparmor.d/libvirt: %s", h.noProfile)
	}
}

// dacLabel returns whom QEMU runs as. A user of the machine's own has no account, so it has no groups but the one that
// is named. A group without a user takes the place of the primary one of QEMU's user, so files made for that user open
// by their owner alone; supplementary groups, as kvm's, stay. libvirt takes such labels with every security driver, and
// with none.
func (h host) dacLabel(uid, group uint32) string {
	switch {
	case uid != 0:
		return fmt.Sprintf("+%d:+%d", uid, group)
	case group == 0:
		return h.label
	}
	user, _, ok := strings.Cut(h.label, ":")
	if !ok {
		user = fmt.Sprintf("+%d", os.Getuid()) // as hostOf has it where libvirt does not say
	}
	return fmt.Sprintf("%s:+%d", user, group)
}

func devices(m hyper.Machine) *libvirtxml.DomainDeviceList {
	first := uint(0)
	cache, io := diskMode(m)
	l := &libvirtxml.DomainDeviceList{
		Controllers: []libvirtxml.DomainController{{Type: "usb", Index: &first, Model: "none"}},
		MemBalloon:  balloon(m),
	}
	if m.Console != "" {
		l.Serials = []libvirtxml.DomainSerial{{Source: listen(m.Console)}}
	}
	if m.Display != "" {
		display(l, m.Display)
	}
	for i, disk := range m.Disks {
		x := diskXML(i, disk, m)
		x.Driver.Cache, x.Driver.IO = cache, io
		if disk.Block && !disk.ReadOnly {
			// Past the page cache: a thin pool that is full is an error of the write itself, at which QEMU stops the
			// guest, and not of some later flush, at which data is lost.
			x.Driver.Cache, x.Driver.IO = "none", "native"
		}
		l.Disks = append(l.Disks, x)
	}
	if len(m.Ports) > 0 {
		// A guest sets up two queues for every port that could be, not for those there are: 31 by default.
		n := uint(len(m.Ports) + 1) // libvirt keeps port 0 for consoles
		l.Controllers = append(l.Controllers, libvirtxml.DomainController{
			Type: "virtio-serial", Index: &first, VirtIOSerial: &libvirtxml.DomainControllerVirtIOSerial{Ports: &n},
		})
	}
	if m.Card.Type != hyper.NoCard {
		l.Interfaces = []libvirtxml.DomainInterface{cards[m.Card.Type].device(m)}
	}
	for _, share := range m.Shares {
		l.Filesystems = append(l.Filesystems, shareXML(share))
	}
	for _, port := range m.Ports {
		l.Channels = append(l.Channels, libvirtxml.DomainChannel{
			Source: portSource(port),
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: port.Name}},
		})
	}
	if m.Boot.Kernel == "" {
		// A kernel that panics and does not reboot then, as most do by default, would never end. That of a micro image
		// reboots.
		l.Panics = []libvirtxml.DomainPanic{{Model: "isa"}}
	}
	if m.Watchdog {
		// QEMU does nothing but report it when the time is up: what is done about that is our caller's to decide.
		l.Watchdogs = []libvirtxml.DomainWatchdog{{Model: "i6300esb", Action: "none"}}
	}
	placeOnRoot(l)
	return l
}

// placeOnRoot puts every device on the root bus. By itself libvirt gives each a bridge of its own, for hot-plug, and
// firmware and guest look behind every bridge. The root bus has slots 1 to 30 to give; what does not fit gets its
// bridge.
func placeOnRoot(l *libvirtxml.DomainDeviceList) {
	const last = 30
	slot := uint(0)
	next := func() *libvirtxml.DomainAddress {
		if slot++; slot > last {
			return nil
		}
		zero, at := uint(0), slot
		return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Domain: &zero, Bus: &zero, Slot: &at,
			Function: &zero}}
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
	for i := range l.Filesystems {
		l.Filesystems[i].Address = next()
	}
	if l.MemBalloon.Model != "none" {
		l.MemBalloon.Address = next()
	}
	for i := range l.Watchdogs {
		l.Watchdogs[i].Address = next()
	}
	for i := range l.Videos {
		l.Videos[i].Address = next()
	}
	for i := range l.Inputs {
		l.Inputs[i].Address = next()
	}
}

// display adds a screen, and a pointer that knows where on it it is; a keyboard and a mouse every machine has. VGA is
// what firmware, boot loaders and kernels of all ages have a driver for, and needs no program of the host's that draws.
func display(l *libvirtxml.DomainDeviceList, socket string) {
	at := libvirtxml.DomainGraphicListener{Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: socket}}
	l.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		Listeners: []libvirtxml.DomainGraphicListener{at}}}}
	l.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga", VRam: videoMemory, Heads: 1,
		Primary: "yes"}}}
	l.Inputs = []libvirtxml.DomainInput{{Type: "tablet", Bus: "virtio"}}
}

// videoMemory holds a screen of 2560 × 1600, in KiB.
const videoMemory = 16384

// lends reports whether a VM shares memory with others as it shares CPUs. A pinned one has its memory for good, and
// none to give.
func lends(m hyper.Machine) bool {
	return m.Purpose == farm.PurposeService && m.Plan.Floating.Len() == len(m.Plan.VCPUs)
}

// balloon lets the host take memory back from VMs that lend it.
func balloon(m hyper.Machine) *libvirtxml.DomainMemBalloon {
	if lends(m) {
		return &libvirtxml.DomainMemBalloon{Model: "virtio"}
	}
	return &libvirtxml.DomainMemBalloon{Model: "none"}
}

// diskMode is how disks are cached and reached. What is thrown away need not be on a disk when the host fails, and
// write-back by the host's page cache gains two orders of magnitude in small operations (CERN, "Tier-0 Resources", WLCG
// Management Board, 14 July 2015). It precludes migration, so services go past it. Native I/O needs that, too: QEMU
// refuses it over the page cache.
func diskMode(m hyper.Machine) (cache, io string) {
	cache = cmp.Or(m.Cache, m.Tuning.Cache)
	if cache == "" && m.Purpose == farm.PurposeService {
		cache = "none"
	}
	if cache == "" {
		cache = "writeback"
	}
	switch direct := pastPageCache(cache); {
	case m.Tuning.IO == "threads", m.Tuning.IO == "io_uring", m.Tuning.IO == "native" && direct:
		return cache, m.Tuning.IO
	case direct:
		return cache, "native"
	}
	return cache, "threads"
}

// pastPageCache reports whether a cache mode leaves the host's page cache out.
func pastPageCache(cache string) bool { return cache == "none" || cache == "directsync" }

// ioThreads is how many threads of QEMU serve a machine's disks.
func ioThreads(m hyper.Machine) int { return max(1, m.Tuning.IOThreads) }

// diskXML makes every disk a virtio disk, a seed ISO too: guests find it by its label, and an emulated CD drive costs
// boot time.
func diskXML(i int, disk hyper.Disk, m hyper.Machine) libvirtxml.DomainDisk {
	thread, queues := uint(i%ioThreads(m)+1), uint(min(cmp.Or(m.Tuning.Queues, len(m.Plan.VCPUs)), maxQueues))
	x := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: disk.Format, IOThread: &thread, Queues: &queues},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk.Path}},
		Target: &libvirtxml.DomainDiskTarget{Dev: diskName(i), Bus: "virtio"},
		Serial: disk.Serial,
	}
	if disk.Block {
		x.Source = &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: disk.Path}}
	}
	if disk.ReadOnly || disk.CDROM {
		x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	} else {
		// Blocks that a job deletes go back to the host's file system. The guest waits for space, and gets all other
		// errors.
		x.Driver.Discard = cmp.Or(m.Tuning.Discard, "unmap")
		x.Driver.ErrorPolicy = "enospace"
		x.Driver.RErrorPolicy = "report"
	}
	return x
}

// shareXML is a directory that somebody serves already: libvirt starts no virtiofsd, which it would as root.
func shareXML(s hyper.Share) libvirtxml.DomainFilesystem {
	const queue = 1024 // requests under way; the default is 128
	return libvirtxml.DomainFilesystem{
		Driver: &libvirtxml.DomainFilesystemDriver{Type: "virtiofs", Queue: queue},
		Source: &libvirtxml.DomainFilesystemSource{
			Mount: &libvirtxml.DomainFilesystemSourceMount{Socket: s.Path}},
		Target: &libvirtxml.DomainFilesystemTarget{Dir: s.Tag},
	}
}

// maxQueues is the most that QEMU gives one device: VIRTIO_QUEUE_MAX.
const maxQueues = 1024

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

func portSource(p hyper.Port) *libvirtxml.DomainChardevSource {
	source := listen(p.Path)
	if p.Served {
		source.UNIX.Mode = "connect"
	}
	return source
}

func kib(b farm.Bytes) uint { return uint(b / farm.KiB) }

// metadataXML wraps the caller's bytes. Base64, for libvirt rewrites XML and we promise the same bytes back.
func metadataXML(data []byte) string {
	return `<grange:vm xmlns:grange="` + namespace + `">` + base64.StdEncoding.EncodeToString(data) + `</grange:vm>`
}

// about is what a domain's XML tells of a machine.
type about struct {
	sockets  []string
	metadata []byte // ours; nil when the domain is not ours
	emulator string
	uid      int  // that QEMU runs as
	profile  bool // its AppArmor profile is ours
}

// describe reads a domain's XML, as libvirt returns it.
func describe(text string) (about, error) {
	type source struct {
		Path string `xml:"path,attr"`
	}
	var d struct {
		VM struct {
			Text *string `xml:"https://grange.dev/xmlns/vm/1 vm"`
		} `xml:"metadata"`
		Emulator string   `xml:"devices>emulator"`
		Channels []source `xml:"devices>channel>source"`
		Serials  []source `xml:"devices>serial>source"`
		Labels   []struct {
			Type  string `xml:"type,attr"`
			Model string `xml:"model,attr"`
			Label string `xml:"label"`
		} `xml:"seclabel"`
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return about{}, fmt.Errorf("read domain XML: %w", err)
	}
	a := about{emulator: d.Emulator, uid: os.Getuid()} // as readHost has it where libvirt does not say
	for _, s := range append(d.Serials, d.Channels...) {
		if s.Path != "" {
			a.sockets = append(a.sockets, s.Path)
		}
	}
	for _, l := range d.Labels {
		if l.Model == appArmor {
			a.profile = l.Type == "static"
		}
		if l.Model != "dac" {
			continue
		}
		var err error
		if a.uid, _, err = parseLabel(l.Label); err != nil {
			return about{}, err
		}
	}
	if d.VM.Text == nil {
		return a, nil
	}
	var err error
	if a.metadata, err = base64.StdEncoding.AppendDecode([]byte{}, []byte(*d.VM.Text)); err != nil {
		return about{}, fmt.Errorf("read our metadata in domain XML: %w", err)
	}
	return a, nil
}

// parseLabel reads a DAC label, as "+64055:+108".
func parseLabel(label string) (uid, gid int, err error) {
	user, group, _ := strings.Cut(label, ":")
	uid, err1 := strconv.Atoi(strings.TrimPrefix(user, "+"))
	gid, err2 := strconv.Atoi(strings.TrimPrefix(group, "+"))
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("read libvirt's DAC label %q: %w", label, err)
	}
	return uid, gid, nil
}
