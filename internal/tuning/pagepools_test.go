package tuning

import (
	"reflect"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// pagesHost has nodes of this much memory, one CPU each, and pages of both sizes.
func pagesHost(release, bootFile string, memory ...farm.Bytes) farm.Host {
	h := farm.Host{Kernel: farm.Kernel{Release: release, BootFile: bootFile}, Pages: []farm.PagePool{{Size: 2 * farm.MiB}, {Size: farm.GiB}}}
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
		host farm.Host
		p    Profile
		want farm.Bytes
	}{
		"a number for each node":              {pagesHost("6.1.0", "etc/default/grub", two...), both, farm.GiB},
		"one number for two nodes":            {pagesHost("3.10.0", "etc/default/grub", two...), both, 2 * farm.MiB},
		"one node needs no number of its own": {pagesHost("3.10.0", "etc/default/grub", two[0]), both, farm.GiB},
		"no command line to write to":         {pagesHost("6.1.0", "", two...), both, 2 * farm.MiB},
		"nothing smaller is wanted":           {pagesHost("3.10.0", "etc/default/grub", two...), Profile{PageSizes: both.PageSizes[:1]}, farm.GiB},
		"no pages are wanted":                 {pagesHost("6.1.0", "etc/default/grub", two...), Profile{}, 0},
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
		"the share":                        {[]farm.Bytes{100 * farm.GiB, 100 * farm.GiB}, []nodePages{{0, 90}, {1, 90}}},
		"what the host needs comes first":  {[]farm.Bytes{32 * farm.GiB, 32 * farm.GiB}, []nodePages{{0, 28}, {1, 28}}},
		"alike nodes get the same":         {[]farm.Bytes{100 * farm.GiB, 97 * farm.GiB}, []nodePages{{0, 87}, {1, 87}}},
		"unequal nodes get their own":      {[]farm.Bytes{100 * farm.GiB, 50 * farm.GiB}, []nodePages{{0, 90}, {1, 45}}},
		"a node without room ends it":      {[]farm.Bytes{100 * farm.GiB, 4 * farm.GiB}, nil},
		"a node without memory is no node": {[]farm.Bytes{100 * farm.GiB, 0}, []nodePages{{0, 90}}},
	} {
		if got := wantedPages(pagesHost("6.1.0", "", c.memory...), p, farm.GiB); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

func TestUnmergeOnlyWithHeadRoom(t *testing.T) {
	host := func(mergedPages int64, available, swapped farm.Bytes) farm.Host {
		return farm.Host{KSM: farm.KSM{Known: true, Run: 1, Sharing: mergedPages},
			Memory: farm.MemoryFacts{Total: 64 * farm.GiB, Available: available, SwapTotal: 8 * farm.GiB, SwapFree: 8*farm.GiB - swapped}}
	}
	const gib = int64(farm.GiB / smallPage) // pages in one
	for name, c := range map[string]struct {
		host farm.Host
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
