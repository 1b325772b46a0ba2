package tuning

import (
	"reflect"
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
		if got := bootPools(line); !reflect.DeepEqual(got, want) {
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
