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
