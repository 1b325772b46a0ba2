package hostfacts_test

import (
	"encoding/binary"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

const fullDomain = `<domain type='kvm'>
  <name>atlas</name><uuid>AAAA-1</uuid>
  <metadata>
    <libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0"><libosinfo:os id="http://centos.org/centos/7.0"/></libosinfo:libosinfo>
    <grange:vm xmlns:grange="https://grange.dev/xmlns/vm/1">e30=</grange:vm>
  </metadata>
  <memory unit='GiB'>4</memory>
  <memoryBacking><hugepages><page size='2' unit='M' nodeset='0'/></hugepages><nosharepages/><locked/><source type='memfd'/><access mode='shared'/></memoryBacking>
  <vcpu placement='static' cpuset='0-3,^1'>4</vcpu>
  <iothreads>1</iothreads>
  <cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='9' cpuset='3'/><emulatorpin cpuset='3'/><iothreadpin iothread='1' cpuset='0'/>
    <vcpusched vcpus='0-1' scheduler='fifo' priority='1'/><iothreadsched iothreads='1' scheduler='batch'/><emulatorsched scheduler='rr' priority='1'/></cputune>
  <numatune><memory nodeset='0-1'/><memnode cellid='0' mode='preferred' nodeset='1'/></numatune>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <features><pvspinlock state='off'/><kvm><hint-dedicated state='on'/><poll-control state='on'/></kvm></features>
  <cpu mode='host-passthrough' migratable='off'><cache mode='passthrough'/><feature policy='disable' name='topoext'/><feature name='svm'/><topology sockets='1' dies='2' cores='1' threads='2'/>
    <numa><cell id='0' cpus='0-3' memory='4194304' unit='KiB'/></numa></cpu>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap' queues='4' iothread='1'/>
      <source file='/var/disks/a.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <disk type='volume'><driver type='raw'/><source pool='p' volume='v'/><target dev='vdb' bus='scsi'/><readonly/></disk>
    <interface type='network'><model type='virtio'/><driver queues='4'/></interface>
    <memballoon model='none'/>
  </devices>
</domain>`

// qcow2 is the head of an image with clusters of 64 KiB, sub-clusters, and one behind it.
func qcow2() string {
	b := make([]byte, 104)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint64(b[8:], 512)
	binary.BigEndian.PutUint32(b[20:], 16)
	binary.BigEndian.PutUint64(b[24:], 10<<30)
	binary.BigEndian.PutUint64(b[72:], 1<<4)
	return string(b)
}

func TestReadDomain(t *testing.T) {
	h := read(t, tree(whole, "etc/libvirt/qemu/atlas.xml", fullDomain, "var/disks/a.qcow2", qcow2(),
		"etc/libvirt/qemu/autostart/atlas.xml", fullDomain))
	set := farm.NewCPUSet
	want := []farm.Domain{{Name: "atlas", UUID: "aaaa-1", Path: "etc/libvirt/qemu/atlas.xml", Ours: true, Type: "kvm",
		Machine: "pc-q35-7.2",
		OSInfo:  "http://centos.org/centos/7.0", VCPUs: 4, Memory: 4 * farm.GiB, CPUMode: "host-passthrough",
		Migratable: "off", CPUCache: "passthrough", CPUFeatures: map[string]string{"topoext": "disable", "svm": "require"},
		VCPUSched: map[int]string{0: "fifo", 1: "fifo"}, IOThreadSched: map[int]string{1: "batch"}, EmulatorSched: "rr",
		MemorySource: "memfd", MemoryShared: true, Autostart: true,
		Guest:       farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 2},
		Cells:       []farm.DomainCell{{VCPUs: set(0, 1, 2, 3), Memory: 4 * farm.GiB, Nodes: set(1), Mode: "preferred"}},
		VCPUPins:    map[int]farm.CPUSet{0: set(2), 1: set(0, 2, 3), 2: set(0, 2, 3), 3: set(0, 2, 3)},
		EmulatorPin: set(3), IOThreadPins: map[int]farm.CPUSet{1: set(0)}, IOThreads: 1, MemoryMode: "strict",
		MemoryNodes: set(0, 1), WholeBound: true,
		Pages: []farm.DomainPages{{Size: 2 * farm.MiB, Cells: set(0)}}, HugePages: true, NoShare: true,
		Locked:  true,
		Balloon: "none",
		Disks: []farm.DomainDisk{{Target: "vda", Bus: "virtio", Format: "qcow2", Cache: "none", IO: "native",
			Discard: "unmap", Path: "/var/disks/a.qcow2", Device: "disk", Queues: 4, IOThread: 1, Size: 10 * farm.GiB,
			Cluster: 64 * farm.KiB, ExtendedL2: true, Backing: true},
			{Target: "vdb", Bus: "scsi", Format: "raw", Path: "p/v", Device: "disk", ReadOnly: true}},
		NICs: []farm.DomainNIC{{Model: "virtio", Kind: "network", Queues: 4}}, Timers: map[string]string{"hpet": "no"},
		PVSpinlock: "off", PollControl: "on", HintDedicated: "on"}}
	if d := cmp.Diff(want, h.Domains); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRunningDomainGoesFirst: what libvirt has started may differ from what it has defined.
func TestRunningDomainGoesFirst(t *testing.T) {
	status := "<domstatus state='running' reason='booted' pid='7'>" + strings.Replace(fullDomain,
		"<memory unit='GiB'>4", "<memory unit='GiB'>8", 1) + "</domstatus>"
	h := read(t, tree(whole, "etc/libvirt/qemu/atlas.xml", fullDomain, "run/libvirt/qemu/atlas.xml", status))
	if len(h.Domains) != 1 || !h.Domains[0].Running || h.Domains[0].Memory != 8*farm.GiB ||
		h.Domains[0].Path != "run/libvirt/qemu/atlas.xml" {
		t.Errorf("%+v", h.Domains)
	}
}

// TestNumadPlaces: numad advises where the XML says so, in the place of lists that libvirt ignores then.
func TestNumadPlaces(t *testing.T) {
	set := farm.NewCPUSet
	for _, c := range []struct {
		name, vcpu, tune string
		advised          bool // <numad nodeset='1' cpuset='2-3'/>
		vcpus, memory    bool
		pin, nodes       farm.CPUSet
	}{
		{"nothing written", "<vcpu>2</vcpu>", "", true, false, false, set(), set()},
		{"vCPUs, and memory follows", "<vcpu placement='auto'>2</vcpu>", "", true, true, true, set(2, 3), set(1)},
		{"not started", "<vcpu placement='auto'>2</vcpu>", "", false, true, true, set(), set()},
		{"a cpuset that is ignored", "<vcpu placement='auto' cpuset='0-1'>2</vcpu>", "", false, true, true, set(),
			set()},
		{"memory by hand", "<vcpu placement='auto'>2</vcpu>", "<numatune><memory nodeset='0'/></numatune>", true, true,
			false, set(2, 3), set(0)},
		{"a cell by hand", "<vcpu placement='auto'>2</vcpu>", "<numatune><memnode cellid='0' nodeset='0'/></numatune>",
			true, true, false, set(2, 3), set(0)},
		{"memory without nodes", "<vcpu placement='auto'>2</vcpu>", "<numatune><memory mode='interleave'/></numatune>",
			true, true, true, set(2, 3), set(1)},
		{"memory, and vCPUs follow", "<vcpu>2</vcpu>", "<numatune><memory placement='auto' nodeset='0'/></numatune>",
			true, true, true, set(2, 3), set(1)},
		{"memory, and vCPUs by hand", "<vcpu cpuset='0-1'>2</vcpu>",
			"<numatune><memory placement='auto'/></numatune>", true, false, true, set(0, 1), set(1)},
		{"memory, and a pin", "<vcpu>2</vcpu>", "<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>" +
			"<numatune><memory placement='auto'/></numatune>", true, false, true, set(0), set(1)},
	} {
		text := "<domstatus state='running'>"
		if c.advised {
			text += "<numad nodeset='1' cpuset='2-3'/>"
		}
		text += "<domain><name>x</name>" + c.vcpu + c.tune + "</domain></domstatus>"
		h := read(t, tree(whole, "run/libvirt/qemu/x.xml", text))
		if len(h.Domains) != 1 {
			t.Fatalf("%s: %q", c.name, h.Unread)
		}
		d := h.Domains[0]
		if d.VCPUAuto != c.vcpus || d.MemoryAuto != c.memory || !d.VCPUPins[0].Equal(c.pin) ||
			!d.MemoryNodes.Equal(c.nodes) {
			t.Errorf("%s: vCPUs %v on %q, memory %v on %q", c.name, d.VCPUAuto, d.VCPUPins[0], d.MemoryAuto,
				d.MemoryNodes)
		}
	}
}

// TestBadDomains: XML that libvirt could not have written is named and left out; the other VMs are there.
func TestBadDomains(t *testing.T) {
	for name, text := range map[string]string{
		"cut short":       fullDomain[:500],
		"no domain":       "<network><name>x</name></network>",
		"empty status":    "<domstatus state='running'/>",
		"no vCPUs":        "<domain type='kvm'><name>x</name></domain>",
		"absurd vCPUs":    "<domain><name>x</name><vcpu>99999999</vcpu></domain>",
		"absurd memory":   "<domain><name>x</name><vcpu>1</vcpu><memory unit='PiB'>99999999</memory></domain>",
		"no unit":         "<domain><name>x</name><vcpu>1</vcpu><memory unit='parsec'>9</memory></domain>",
		"absurd pin":      "<domain><name>x</name><vcpu cpuset='0-999999999'>1</vcpu></domain>",
		"deep":            strings.Repeat("<a>", 1000) + strings.Repeat("</a>", 1000),
		"many elements":   "<domain>" + strings.Repeat("<a/>", 200_000) + "</domain>",
		"not of this set": "\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			h := read(t, tree(whole, "etc/libvirt/qemu/good.xml", fullDomain, "etc/libvirt/qemu/bad.xml", text))
			if len(h.Domains) != 1 || h.Domains[0].Name != "atlas" {
				t.Errorf("%d domains", len(h.Domains))
			}
			if len(h.Unread) != 1 || !strings.Contains(h.Unread[0], "bad.xml") {
				t.Errorf("not named: %q", h.Unread)
			}
		})
	}
}

// closed refuses to open one path, as the kernel does to a caller without rights.
type closed struct {
	fstest.MapFS
	path string
}

func (c closed) Open(name string) (fs.File, error) {
	if name == c.path {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return c.MapFS.Open(name)
}

func TestClosedDomainsAreNamed(t *testing.T) {
	files := tree(whole, "etc/libvirt/qemu/a.xml", fullDomain)
	h, err := hostfacts.Read(closed{files, "etc/libvirt/qemu/a.xml"})
	if err != nil || len(h.Domains) != 0 || len(h.Unread) != 1 || !strings.Contains(h.Unread[0], "permission denied") {
		t.Errorf("%v, %v, %q", h.Domains, err, h.Unread)
	}
}
