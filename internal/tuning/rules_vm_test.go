package tuning

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// cpuSet reads a list of CPUs.
func cpuSet(t *testing.T, list string) farm.CPUSet {
	t.Helper()
	s, err := farm.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// domain is a running VM; pins are lists of CPUs, one for each vCPU, or a single one for all.
func domain(t *testing.T, name string, vcpus int, pins ...string) farm.Domain {
	d := farm.Domain{Name: name, Type: "kvm", Running: true, VCPUs: vcpus, VCPUPins: map[int]farm.CPUSet{}}
	for vcpu := range vcpus {
		if len(pins) > 0 {
			d.VCPUPins[vcpu] = cpuSet(t, pins[min(vcpu, len(pins)-1)])
		}
	}
	return d
}

func TestDomainsThatSayNothing(t *testing.T) {
	base := hostOf(t, baseOf(t, Compute))
	for _, role := range allRoles {
		p := Choose(base, role)
		base.Domains = make([]farm.Domain, 3)
		for _, r := range vmRules() {
			if found := r.Check(farm.HostFacts{Domains: base.Domains}, p); len(found) > 0 {
				t.Errorf("%s finds on an unknown host: %s", r.ID, lines(found))
			}
			if found := r.Check(base, p); len(found) > 0 && r.For(Compute) {
				t.Errorf("%s finds in an empty definition: %s", r.ID, lines(found))
			}
		}
	}
}

func TestPinOverlap(t *testing.T) {
	base := hostOf(t, baseOf(t, Compute)) // cores 0,4 and 1,5 on node 0, 2,6 and 3,7 on node 1
	stopped := domain(t, "b", 4, "0-1,4-5")
	stopped.Running = false
	for _, c := range []struct {
		name    string
		domains []farm.Domain
		want    string // of the first finding: severity and VM
		count   int
	}{
		{"two VMs on one socket, the other idle",
			[]farm.Domain{domain(t, "a", 4, "0-1,4-5"), domain(t, "b", 4, "0-1,4-5")}, "fault VM a", 1},
		{"only one of them runs", []farm.Domain{domain(t, "a", 4, "0-1,4-5"), stopped}, "", 0},
		{"two small VMs in a group of CPUs that holds both",
			[]farm.Domain{domain(t, "a", 2, "0-1,4-5"), domain(t, "b", 2, "0-1,4-5")}, "", 0},
		{"one CPU for two pinned VMs", []farm.Domain{domain(t, "a", 2, "0", "4"), domain(t, "b", 2, "4", "5")},
			"fault VM a", 1},
		{"the same, with all CPUs taken",
			[]farm.Domain{domain(t, "a", 4, "0", "1", "2", "3"), domain(t, "b", 5, "3", "4", "5", "6", "7")},
			"warning VM a", 1},
		{"a shared pool, full, and no room elsewhere",
			[]farm.Domain{domain(t, "a", 4, "0-3"), domain(t, "b", 4, "0-3"), domain(t, "c", 4, "4", "5", "6", "7")},
			"", 0},
		{"a shared pool beside pinned VMs and free CPUs",
			[]farm.Domain{domain(t, "a", 4, "0-3"), domain(t, "b", 4, "0-3"), domain(t, "c", 1, "4")},
			"warning VM a", 1},
		{"a VM that may run anywhere takes the idle CPUs",
			[]farm.Domain{domain(t, "a", 4, "0-3"), domain(t, "b", 4, "0-3"), domain(t, "c", 4)}, "", 0},
		{"three on the same CPUs", []farm.Domain{domain(t, "a", 1, "0"), domain(t, "b", 1, "0"),
			domain(t, "c", 1, "0")}, "fault VM a", 2},
	} {
		base.Domains = c.domains
		found := checkVMPinOverlap(base, Profile{})
		if len(found) != c.count || c.count > 0 && fmt.Sprintf("%v %s", found[0].Severity, found[0].Where) != c.want {
			t.Errorf("%s: found\n%swant %d, %q first", c.name, lines(found), c.count, c.want)
		}
	}
}

func TestRoamingStaysOffIsolatedCPUs(t *testing.T) {
	base := hostOf(t, baseOf(t, Compute))
	base.Domains = []farm.Domain{domain(t, "pinned", 2, "2", "6"), domain(t, "roams", 2)}
	if found := checkVMRoamsDedicated(base, Profile{}); len(found) != 1 || found[0].Where != "VM roams" {
		t.Errorf("found\n%s", lines(found))
	}
	base.Isolated = cpuSet(t, "2,6")
	if found := checkVMRoamsDedicated(base, Profile{}); len(found) != 0 {
		t.Errorf("the pinned VM's CPUs are isolated, and it found\n%s", lines(found))
	}
}

// What a finding tells a person to write must itself be quiet.
func TestAdviceIsQuiet(t *testing.T) {
	base := hostOf(t, baseOf(t, Compute))
	d := domain(t, "large", 8)
	d.Memory = 17*farm.GiB + 2*farm.MiB
	base.Domains = []farm.Domain{d}
	found := checkVMNoGuestNUMA(base, Profile{})
	if len(found) != 1 {
		t.Fatalf("found\n%s", lines(found))
	}
	want := "<numa><cell id='0' cpus='0-3' memory='8912896' unit='KiB'/><cell id='1' cpus='4-7' memory='8914944' " +
		"unit='KiB'/></numa>"
	if !strings.Contains(found[0].Manual, want) {
		t.Errorf("%s\nlacks\n%s", found[0].Manual, want)
	}
	if total := farm.Bytes(8912896+8914944) * farm.KiB; total != d.Memory {
		t.Errorf("the cells have %v, the VM %v", total, d.Memory)
	}

	d.Cells = []farm.DomainCell{{VCPUs: cpuSet(t, "0-3")}, {VCPUs: cpuSet(t, "4-7")}}
	for vcpu, cpu := range []int{0, 4, 1, 5, 2, 6, 3, 7} {
		d.VCPUPins[vcpu] = farm.NewCPUSet(cpu)
	}
	if g := likePins(base.Topology, d); g != (farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 2}) {
		t.Errorf("pinned to pairs of siblings, a socket a cell: %+v", g)
	}
	d.VCPUPins[1], d.VCPUPins[2] = farm.NewCPUSet(1), farm.NewCPUSet(4)
	if g := likePins(base.Topology, d); g != (farm.GuestTopology{Sockets: 2, Cores: 4, Threads: 1}) {
		t.Errorf("with a pair that is no pair: %+v", g)
	}
}

func TestReleases(t *testing.T) {
	for id, want := range map[string]bool{"http://centos.org/centos/7.0": true, "http://redhat.com/rhel/7.9": true,
		"http://centos.org/centos/7":   true,
		"http://centos.org/centos/6.6": false, "http://centos.org/centos-stream/9": false,
		"http://redhat.com/rhel/77": false, "": false} {
		if got := ofRelease7(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
	for machine, want := range map[string]string{"pc-q35-7.2": "7.2 true", "pc-i440fx-2.12": "2.12 true",
		"pc-1.3": "1.3 true", "pc-i440fx-rhel7.6.0": "0.0 false", "q35": "0.0 false", "": "0.0 false"} {
		major, minor, ok := machineVersion(machine)
		if got := fmt.Sprintf("%d.%d %v", major, minor, ok); ok && got != want ||
			!ok && !strings.HasSuffix(want, "false") {
			t.Errorf("%q: %s, want %s", machine, got, want)
		}
	}
}

// TestMissingPages counts the pages of defined VMs cell by cell, by the mode of their binding.
func TestMissingPages(t *testing.T) {
	base := hostOf(t, baseOf(t, Compute)) // 28 pages of 1 GiB on each of two nodes, and none of 2 MiB
	set := farm.NewCPUSet
	cell := func(gib farm.Bytes, mode string, nodes ...int) farm.DomainCell {
		return farm.DomainCell{Memory: gib * farm.GiB, Mode: mode, Nodes: set(nodes...)}
	}
	vm := func(gib farm.Bytes, mode string, nodes []int, cells ...farm.DomainCell) farm.Domain {
		return farm.Domain{Name: "v", VCPUs: 2, Memory: gib * farm.GiB, HugePages: true, MemoryMode: mode,
			MemoryNodes: set(nodes...), WholeBound: len(nodes) > 0, Cells: cells}
	}
	both := []int{0, 1}
	small := vm(4, "", nil)
	small.Pages = []farm.DomainPages{{Size: 2 * farm.MiB}}
	byCell := vm(8, "", nil, cell(4, "strict", 0), cell(4, "strict", 1))
	byCell.Pages = []farm.DomainPages{{Size: farm.GiB, Cells: set(0)}, {Size: 2 * farm.MiB, Cells: set(1)}}
	ordinary := byCell
	ordinary.Pages = byCell.Pages[:1]
	unknown := vm(4, "", nil)
	unknown.Pages = []farm.DomainPages{{Size: 16 * farm.GiB}}
	for _, c := range []struct {
		name string
		d    farm.Domain
		want string // a part of what is wanted; "" where all is there
	}{
		{"fits a node", vm(28, "strict", []int{0}), ""},
		{"strict, too large for its node", vm(29, "strict", []int{0}), "29 pages of 1 GiB (the default size) on node 0"},
		{"restrictive is strict", vm(29, "restrictive", []int{1}), "29 pages of 1 GiB (the default size) on node 1"},
		{"preferred takes the rest elsewhere", vm(29, "preferred", []int{0}), ""},
		{"interleave takes the rest elsewhere", vm(29, "interleave", []int{0}), ""},
		{"preferred, too large for the host", vm(57, "preferred", []int{0}),
			"57 pages of 1 GiB (the default size) on the host"},
		{"on two nodes", vm(56, "strict", both), ""},
		{"too large for two nodes", vm(57, "strict", both), "on nodes 0-1"},
		{"unbound", vm(57, "", nil), "on the host"},
		{"cells on their nodes", vm(56, "", nil, cell(28, "strict", 0), cell(28, "strict", 1)), ""},
		{"one cell too large", vm(56, "", nil, cell(26, "strict", 0), cell(30, "strict", 1)),
			"guest cell 1: 30 pages of 1 GiB (the default size) on node 1"},
		{"the same, preferred", vm(56, "", nil, cell(26, "preferred", 0), cell(30, "preferred", 1)), ""},
		{"two cells on one node", vm(30, "", nil, cell(15, "strict", 0), cell(15, "strict", 0)),
			"guest cells 0-1: 30 pages of 1 GiB (the default size) on node 0"},
		{"a cell beside one that is bound", vm(56, "", nil, cell(28, "strict", 0), cell(28, "")), ""},
		{"a cell with the whole VM", vm(30, "strict", []int{0}, cell(2, "strict", 1), cell(28, "")), ""},
		{"more than the host in all", vm(58, "", nil, cell(28, "strict", 0), cell(30, "")),
			"58 pages of 1 GiB (the default size) on the host"},
		{"another size", small, "2048 pages of 2 MiB on the host"},
		{"a size for each cell", byCell, "guest cell 1: 2048 pages of 2 MiB on node 1"},
		{"a cell in ordinary pages", ordinary, ""},
		{"a size that the kernel lacks", unknown, "1 pages of 16 GiB on the host"},
		{"a node that is not there", vm(4, "strict", []int{3}), ""},
	} {
		base.Domains = []farm.Domain{c.d}
		found := checkVMPagesMissing(base, Profile{})
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %s", c.name, found[0].Wanted)
		case c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Wanted, c.want)):
			t.Errorf("%s: %+v, not %q", c.name, found, c.want)
		}
	}
}

// TestCellsCutTopology compares guest topologies with lists of cells, with and without pins.
func TestCellsCutTopology(t *testing.T) {
	for _, c := range []struct {
		name                    string
		sockets, cores, threads int
		cells                   string // separated by blanks
		want                    string
	}{
		{"a cell a socket", 2, 2, 2, "0-3 4-7", ""},
		{"two cells a socket", 1, 4, 2, "0-3 4-7", ""},
		{"two sockets a cell", 4, 2, 1, "0-3 4-7", ""},
		{"cells of other sizes within a socket", 1, 4, 2, "0-1 2-7", ""},
		{"halves of sockets", 2, 2, 2, "0-1,4-5 2-3,6-7", "guest cell 0 holds vCPUs of both guest sockets"},
		{"halves of sockets, one thread", 2, 4, 1, "0-1,4-5 2-3,6-7", "both guest sockets"},
		{"half cores", 1, 4, 2, "0,2,4,6 1,3,5,7", "vCPUs 0-1 are one core"},
		{"one core in two", 1, 4, 2, "0-2 3-7", "vCPUs 2-3 are one core"},
		{"four threads", 1, 2, 4, "0-1 2-7", "vCPUs 0-3 are one core"},
		{"a cell of one socket and a half", 4, 2, 1, "0-2 3-7", "parts of guest socket 1"},
		{"odd cells without threads", 1, 8, 1, "0,2,4,6 1,3,5,7", ""},
		{"each vCPU a socket", 8, 1, 1, "0,2,4,6 1,3,5,7", ""},
		{"no topology", 0, 0, 0, "0,2,4,6 1,3,5,7", ""},
		{"sub-NUMA clusters", 2, 2, 2, "0-1 2-3 4-5 6-7", ""},
		{"clusters across sockets", 2, 2, 2, "0-1 2-5 6-7", "guest cell 1 holds vCPUs of both guest sockets"},
	} {
		d := domain(t, "v", 8)
		d.Guest = farm.GuestTopology{Sockets: c.sockets, Cores: c.cores, Threads: c.threads}
		for cell := range strings.FieldsSeq(c.cells) {
			d.Cells = append(d.Cells, farm.DomainCell{VCPUs: cpuSet(t, cell)})
		}
		if got := cutBy(d); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
		if next, ok := inRows(farm.Topology{}, d); c.want != "" && (!ok || cutBy(next) != "") {
			t.Errorf("%s: the advice leaves %q", c.name, cutBy(next))
		}
	}
}

// TestThreadsHidden tries CPU modes and models on AMD's and Hygon's processors.
func TestThreadsHidden(t *testing.T) {
	policy := func(p string) map[string]string { return map[string]string{"topoext": p} }
	for _, c := range []struct {
		vendor, mode, model string
		features            map[string]string
		want                bool
	}{
		{"AuthenticAMD", "host-passthrough", "", nil, true},
		{"AuthenticAMD", "host-passthrough", "", policy("require"), false},
		{"AuthenticAMD", "host-passthrough", "", policy("force"), false},
		{"AuthenticAMD", "maximum", "", nil, true},
		{"AuthenticAMD", "host-model", "", nil, false},
		{"AuthenticAMD", "host-model", "", policy("disable"), true},
		{"AuthenticAMD", "custom", "EPYC-Milan", nil, false},
		{"AuthenticAMD", "custom", "EPYC-Milan", policy("forbid"), true},
		{"AuthenticAMD", "", "", nil, true},
		{"AuthenticAMD", "custom", "Opteron_G5", nil, true},
		{"HygonGenuine", "host-passthrough", "", policy("disable"), true},
		{"HygonGenuine", "custom", "Dhyana", nil, false},
		{"GenuineIntel", "host-passthrough", "", nil, false},
	} {
		d := domain(t, "v", 2)
		d.CPUMode, d.CPUModel, d.CPUFeatures = c.mode, c.model, c.features
		d.Guest = farm.GuestTopology{Sockets: 1, Cores: 1, Threads: 2}
		h := farm.HostFacts{Domains: []farm.Domain{d}}
		h.Topology.CPU = farm.CPUModel{Vendor: c.vendor, Flags: []string{"topoext"}}
		if found := checkVMThreadsHidden(h, Profile{}); (len(found) > 0) != c.want {
			t.Errorf("%+v: found\n%s", c, lines(found))
		}
	}
}
