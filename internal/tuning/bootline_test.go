package tuning

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestBootPools(t *testing.T) {
	for line, want := range map[string][]bootPool{
		"ro quiet": nil,
		"default_hugepagesz=1G hugepagesz=1G hugepages=55": {{size: farm.GiB, total: 55}},
		"hugepages=512":                     {{size: 2 * farm.MiB, total: 512}},
		"hugepages=4 default_hugepagesz=1G": {{size: farm.GiB, total: 4}},
		"hugepages=256 hugepagesz=1G hugepages=8": {{size: 2 * farm.MiB, total: 256},
			{size: farm.GiB, total: 8}},
		"hugepagesz=1G hugepages=0:24,1:20": {{size: farm.GiB, total: 44,
			nodes: map[int]int{0: 24, 1: 20}}},
		"hugepagesz=1G hugepages=all hugepages=-3 hugepages=0:x":        nil,
		"hugepages=99999999999999 hugepages=0:1073741824,1:1073741824":  nil,
		"hugepagesz=2M hugepages=10 -- hugepages=20 transparent=always": {{size: 2 * farm.MiB, total: 10}},
	} {
		if got := bootPools(farm.HostFacts{}, line); !reflect.DeepEqual(got, want) {
			t.Errorf("%q asks for %+v, not %+v", line, got, want)
		}
	}
}

func TestBootValueIsTheLastOne(t *testing.T) {
	const line = "kvm-intel.ept=1 transparent_hugepage=never nosmt kvm_intel.ept=0 transparent_hugepage=madvise -- " +
		"nosmt=force"
	for name, want := range map[string]string{"kvm_intel.ept": "0", "kvm-intel.ept": "0",
		"transparent_hugepage": "madvise", "nosmt": ""} {
		if got, ok := bootValue(line, name); !ok || got != want {
			t.Errorf("%s is %q (%v), not %q", name, got, ok, want)
		}
	}
	if _, ok := bootValue(line, "hugepages"); ok {
		t.Error("a parameter is found that is not there")
	}
}

func TestVersions(t *testing.T) {
	for _, v := range []struct {
		text          string
		since, before bool // of 5.16
	}{{"5.16.0-1-amd64", true, false}, {"6.1.0-28-amd64", true, false}, {"5.4", false, true}, {"3.10.0-229.el7.x86_64",
		false, true}, {"", false, false}, {"unknown", false, false}} {
		if since(v.text, 5, 16) != v.since || before(v.text, 5, 16) != v.before {
			t.Errorf("%q: since 5.16 %v, before %v", v.text, since(v.text, 5, 16), before(v.text, 5, 16))
		}
	}
}

// TestKernelReadsPages compares what a host's kernel makes of command lines, of architectures and page sizes that
// differ.
func TestKernelReadsPages(t *testing.T) {
	host := func(standard farm.Bytes, flags string, sizes ...farm.Bytes) farm.HostFacts {
		h := farm.HostFacts{Topology: farm.Topology{Nodes: []farm.Node{{ID: 0}, {ID: 1}}}}
		h.Topology.CPU.Flags, h.Memory.DefaultPage = strings.Fields(flags), standard
		for _, size := range sizes {
			h.Pages = append(h.Pages, farm.PagePool{Size: size})
		}
		return h
	}
	x86 := host(2*farm.MiB, "lm pdpe1gb", 2*farm.MiB, farm.GiB)
	small := host(2*farm.MiB, "lm", 2*farm.MiB)
	arm4 := host(2*farm.MiB, "", 64*farm.KiB, 2*farm.MiB, 32*farm.MiB, farm.GiB)
	arm16 := host(32*farm.MiB, "", 2*farm.MiB, 32*farm.MiB, farm.GiB)
	arm64 := host(512*farm.MiB, "", 2*farm.MiB, 512*farm.MiB, 16*farm.GiB)
	hash := host(16*farm.MiB, "", 16*farm.MiB, 16*farm.GiB)
	s390 := host(farm.MiB, "", farm.MiB)
	old := x86
	old.Kernel.Release = "4.18.0-553.el8.x86_64"
	for _, c := range []struct {
		name, line string
		h          farm.HostFacts
		pools      string // size and number of each
		dropped    string // a part of what is said of it; "" where the kernel takes all
	}{
		{"one size, three spellings", "hugepagesz=2048kB hugepages=4", x86, "2M 4", ""},
		{"bytes", "hugepagesz=0x40000000 hugepages=4", x86, "1G 4", ""},
		{"KiB", "hugepagesz=1048576K hugepages=4", x86, "1G 4", ""},
		{"default twice is one", "default_hugepagesz=1G hugepagesz=1G hugepages=4", x86, "1G 4", ""},
		{"a pair after the default has its number", "default_hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=8", x86,
			"1G 4", "hugepagesz=1G is there twice"},
		{"two defaults", "default_hugepagesz=1G hugepagesz=1G hugepages=4 default_hugepagesz=2M hugepages=8", x86, "1G 4",
			"default_hugepagesz=2M is the second"},
		{"a number twice", "hugepagesz=1G hugepages=56 hugepages=60", x86, "1G 56", "twice for pages of 1 GiB"},
		{"a number twice, before any size", "hugepages=5 hugepages=6", x86, "2M 5", "twice for pages of the default size"},
		{"the same number twice", "hugepages=5 hugepages=5", x86, "2M 5", "twice"},
		{"no pdpe1gb", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", small, "2M 8",
			"hugepagesz=1G hugepages=4: this kernel has no pages of 1 GiB"},
		{"no pdpe1gb, by default", "default_hugepagesz=1G hugepages=4", small, "", "no pages of 1 GiB"},
		{"a size that none has", "hugepagesz=3M hugepages=4", x86, "", "no pages of 3 MiB"},
		{"no size", "hugepagesz=big hugepages=4", x86, "", "hugepagesz=big hugepages=4: this is no page size"},
		{"no size at the end", "hugepagesz=", x86, "", "this is no page size"},
		{"an absent node", "hugepagesz=1G hugepages=0:4,3:2", x86, "1G 4", "2 pages for node 3"},
		{"no number", "hugepagesz=1G hugepages=some", x86, "", "no number"},
		{"nodes and a number", "hugepages=4,1:2", x86, "", "no number"},
		{"by node on an old kernel", "hugepagesz=1G hugepages=0:4,1:4", old, "1G 0", "no number for each node"},
		{"arm64, 4 KiB", "hugepagesz=64K hugepages=4 hugepagesz=32M hugepages=2 hugepages=1", arm4, "64K 4, 32M 2",
			"twice for pages of 32 MiB"},
		{"arm64, 4 KiB, default", "hugepages=4", arm4, "2M 4", ""},
		{"arm64, 16 KiB", "hugepages=4 hugepagesz=512M hugepages=1", arm16, "32M 4", "no pages of 512 MiB"},
		{"arm64, 64 KiB", "hugepages=4 hugepagesz=1G hugepages=1", arm64, "512M 4", "no pages of 1 GiB"},
		{"arm64, 64 KiB, all", "hugepagesz=2M hugepages=4 hugepagesz=16G hugepages=1", arm64, "2M 4, 16G 1", ""},
		{"ppc64 with hash tables", "hugepages=4 hugepagesz=2M hugepages=1", hash, "16M 4", "no pages of 2 MiB"},
		{"s390x", "hugepages=4 hugepagesz=2G hugepages=1", s390, "1M 4, 2G 1", ""},
		{"s390x, 1G", "hugepagesz=1G hugepages=1", s390, "", "no pages of 1 GiB"},
	} {
		pools, dropped := readPages(c.h, c.line)
		var got, said []string
		for _, p := range pools {
			got = append(got, fmt.Sprintf("%v %d", p.size, p.total))
		}
		for _, d := range dropped {
			said = append(said, d.got)
		}
		if text := strings.Join(got, ", "); text != c.pools {
			t.Errorf("%s: %q asks for %q, not %q", c.name, c.line, text, c.pools)
		}
		if text := strings.Join(said, "; "); !strings.Contains(text, c.dropped) || (c.dropped == "") != (text == "") {
			t.Errorf("%s: of %q it says %q, not %q", c.name, c.line, text, c.dropped)
		}
	}
	// The running kernel was asked for a size and does not show it: it has refused it, whatever the flags say.
	x86.Kernel.Command = "hugepagesz=1G hugepages=2"
	x86.Pages = x86.Pages[:1]
	if _, dropped := readPages(x86, x86.Kernel.Command); len(dropped) != 1 {
		t.Errorf("a size that the running kernel refused: %+v", dropped)
	}
}
