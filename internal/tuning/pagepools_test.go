package tuning

import (
	"reflect"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// pagesHost has nodes of this much memory, one CPU each, and pages of both sizes.
func pagesHost(release, bootFile string, memory ...farm.Bytes) farm.HostFacts {
	h := farm.HostFacts{Kernel: farm.Kernel{Release: release, BootFile: bootFile},
		Pages: []farm.PagePool{{Size: 2 * farm.MiB}, {Size: farm.GiB}}}
	h.Topology.CPU.Flags = []string{"pdpe1gb"}
	for i, m := range memory {
		n := farm.Node{ID: i, Memory: m, CPUs: farm.NewCPUSet(i)}
		h.Topology.Nodes = append(h.Topology.Nodes, n)
		h.Memory.Total += m
	}
	return h
}

func TestPageSizeIsOneTheHostGivesEvenly(t *testing.T) {
	both := Profile{PageSizes: []farm.Bytes{farm.GiB, 2 * farm.MiB}}
	two := []farm.Bytes{32 * farm.GiB, 32 * farm.GiB}
	for name, c := range map[string]struct {
		host farm.HostFacts
		p    Profile
		want farm.Bytes
	}{
		"a number for each node":              {pagesHost("6.1.0", "etc/default/grub", two...), both, farm.GiB},
		"one number for two nodes":            {pagesHost("3.10.0", "etc/default/grub", two...), both, 2 * farm.MiB},
		"one node needs no number of its own": {pagesHost("3.10.0", "etc/default/grub", two[0]), both, farm.GiB},
		"no command line to write to":         {pagesHost("6.1.0", "", two...), both, 2 * farm.MiB},
		"nothing smaller is wanted": {pagesHost("3.10.0", "etc/default/grub", two...),
			Profile{PageSizes: both.PageSizes[:1]}, farm.GiB},
		"no pages are wanted": {pagesHost("6.1.0", "etc/default/grub", two...), Profile{}, 0},
	} {
		if got, ok := pageSize(c.host, c.p); got != c.want || ok != (c.want > 0) {
			t.Errorf("%s: %s (%v), not %s", name, got, ok, c.want)
		}
	}
	old := pagesHost("6.1.0", "etc/default/grub", two...)
	old.Topology.CPU.Flags = []string{"pse"}
	if got, _ := pageSize(old, both); got != 2*farm.MiB {
		t.Errorf("a processor without pdpe1gb gets pages of %s", got)
	}
}

func TestWantedPages(t *testing.T) {
	p := Profile{PageShare: 0.9, Reserved: 8 * farm.GiB}
	for name, c := range map[string]struct {
		memory []farm.Bytes
		want   []nodePages
	}{
		"the share": {[]farm.Bytes{100 * farm.GiB, 100 * farm.GiB},
			[]nodePages{{0, 90}, {1, 90}}},
		"what the host needs comes first": {[]farm.Bytes{32 * farm.GiB, 32 * farm.GiB}, []nodePages{{0, 28}, {1, 28}}},
		"alike nodes get the same": {[]farm.Bytes{100 * farm.GiB, 97 * farm.GiB},
			[]nodePages{{0, 87}, {1, 87}}},
		"unequal nodes get their own": {[]farm.Bytes{100 * farm.GiB, 50 * farm.GiB},
			[]nodePages{{0, 90}, {1, 45}}},
		"a node without room ends it":      {[]farm.Bytes{100 * farm.GiB, 4 * farm.GiB}, nil},
		"a node without memory is no node": {[]farm.Bytes{100 * farm.GiB, 0}, []nodePages{{0, 90}}},
	} {
		if got := wantedPages(pagesHost("6.1.0", "", c.memory...), p, farm.GiB); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

func TestUnmergeOnlyWithHeadRoom(t *testing.T) {
	host := func(mergedPages int64, available, swapped farm.Bytes) farm.HostFacts {
		return farm.HostFacts{KSM: farm.KSM{Known: true, Run: 1, Sharing: mergedPages},
			Memory: farm.MemoryFacts{Total: 64 * farm.GiB, Available: available, SwapTotal: 8 * farm.GiB,
				SwapFree: 8*farm.GiB - swapped}}
	}
	const gib = int64(farm.GiB / smallPage) // pages in one
	for name, c := range map[string]struct {
		host farm.HostFacts
		want bool
	}{
		"nothing merged":                        {host(0, 0, 0), true},
		"room for it and the margin":            {host(4*gib, 6*farm.GiB, 0), true},
		"room for it only":                      {host(4*gib, 5*farm.GiB, 0), false},
		"what is in swap must come back first":  {host(4*gib, 7*farm.GiB, 2*farm.GiB), false},
		"room for what is in swap as well":      {host(4*gib, 8*farm.GiB, 2*farm.GiB), true},
		"a little idle memory in swap is usual": {host(4*gib, 6*farm.GiB, 200*farm.MiB), true},
	} {
		if got := canUnmerge(c.host); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		found := checkKSMOnCompute(c.host, Profile{KSM: "off"})
		warned := checkKSMOffNoHeadroom(c.host, Profile{KSM: "off"})
		if len(found)+len(warned) != 1 || (len(found) == 1) != c.want {
			t.Errorf("%s: %d findings say to stop KSM and %d say not to", name, len(found), len(warned))
		}
	}
}

// A pool must leave the host what its own programs use now, not only what a profile keeps for any host.
func TestPoolsLeaveWhatTheHostUses(t *testing.T) {
	p := Profile{PageShare: 0.9, Reserved: 4 * farm.GiB}
	h := pagesHost("6.1.0", "", 32*farm.GiB)
	for _, c := range []struct {
		available, want farm.Bytes
		vms             []farm.Domain
	}{
		{0, 4 * farm.GiB, nil}, // not told
		{30 * farm.GiB, 4 * farm.GiB, nil},
		{20 * farm.GiB, 14 * farm.GiB, nil}, // 12 in use, 2 to spare
		// a VM's memory is no need of the host
		{20 * farm.GiB, 4 * farm.GiB, []farm.Domain{{Running: true, Memory: 10 * farm.GiB}}},
		// it does not run
		{20 * farm.GiB, 14 * farm.GiB, []farm.Domain{{Memory: 10 * farm.GiB}}},
		// its pages are counted as a pool
		{20 * farm.GiB, 14 * farm.GiB, []farm.Domain{{Running: true, HugePages: true, Memory: 1 << 33}}},
	} {
		h.Memory.Available, h.Domains = c.available, c.vms
		if got := ownNeed(h, p); got != c.want {
			t.Errorf("%v available, %d VMs: the host needs %v, want %v", c.available, len(c.vms), got, c.want)
		}
	}
	h.Memory.Available, h.Domains = 20*farm.GiB, nil
	if got := wantedPages(h, p, farm.GiB); len(got) != 1 || got[0].count != 18 {
		t.Errorf("32 GiB, of which the host uses 12: %+v, want 18 pages of 1 GiB", got)
	}
}

// Where VMs in ordinary memory would not fit beside a pool, no pool is offered.
func TestNoPoolThatStarvesOrdinaryVMs(t *testing.T) {
	p := Profile{PageSizes: []farm.Bytes{2 * farm.MiB}, PageShare: 0.9, Reserved: 4 * farm.GiB}
	h := pagesHost("6.1.0", "etc/default/grub", 64*farm.GiB)
	h.Domains = []farm.Domain{{Name: "a", Memory: farm.GiB}}
	if found := checkHugepagesNone(h, p); len(found) != 1 || len(found[0].Changes) == 0 {
		t.Errorf("1 GiB fits beside the pool, and it found %+v", found)
	}
	h.Domains[0].Memory = 16 * farm.GiB
	if found := checkHugepagesNone(h, p); len(found) != 1 || len(found[0].Changes) != 0 || found[0].Manual == "" {
		t.Errorf("16 GiB do not fit beside the pool, and it found %+v", found)
	}
}
