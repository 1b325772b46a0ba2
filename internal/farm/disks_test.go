package farm

import (
	"reflect"
	"strings"
	"testing"
)

// TestDiskTexts: what a shape writes of its disks is what it reads.
func TestDiskTexts(t *testing.T) {
	for _, texts := range []DiskTexts{
		{},
		{Root: "40G"}, {Root: "raw"}, {Root: "40G,clone"},
		{Scratch: "20G,thin", Volumes: []string{"/data=10G", "/pool/x=1G,lvm"}, Swap: "4G", MemoryPeak: "12G"},
	} {
		s, err := Shape{CPUs: 1, Memory: 8 * GiB, Network: NetworkNone}.WithDisks(texts)
		if err != nil || s.Validate() != nil {
			t.Errorf("%+v: %v, %v", texts, err, s.Validate())
		}
		if got := s.Texts(); !reflect.DeepEqual(got, texts) {
			t.Errorf("%+v became %+v", texts, got)
		}
	}
}

func TestBadDisks(t *testing.T) {
	for _, c := range []struct {
		texts DiskTexts
		want  string
	}{
		{DiskTexts{Root: "40G,lvm"}, "overlay, clone or raw"},
		{DiskTexts{Scratch: "1G,nfs"}, "file, lvm, thin and tmpfs"},
		{DiskTexts{Scratch: "2G,tmpfs"}, "in 1G of memory"},
		{DiskTexts{Volumes: []string{"/data=1M"}}, "the least is 16M"},
		{DiskTexts{Volumes: []string{"data=1G"}}, "absolute path"},
		{DiskTexts{Volumes: []string{"/usr/x=1G"}}, "absolute path"},
		{DiskTexts{Volumes: []string{"/a/../etc=1G"}}, "absolute path"},
		{DiskTexts{Volumes: []string{"/a b=1G"}}, "absolute path"},
		{DiskTexts{Scratch: "1G", Volumes: []string{"/tmp/x=1G"}}, "absolute path"},
		{DiskTexts{Volumes: []string{"/a=1G", "/a=2G"}}, "two volumes"},
		{DiskTexts{Volumes: strings.Split(strings.Repeat("/a=1G ", 9)[:53], " ")}, "at most 8"},
		{DiskTexts{Swap: "2000T"}, "of swap"},
	} {
		s, err := Shape{CPUs: 1, Memory: GiB, Network: NetworkNone}.WithDisks(c.texts)
		if err == nil {
			err = s.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.texts, err, c.want)
		}
	}
}

// TestSwapSize: swap makes up for what memory lacks of the peak, also where a batch system gave less memory.
func TestSwapSize(t *testing.T) {
	for _, c := range []struct{ memory, peak, swap, want Bytes }{
		{8 * GiB, 0, 0, 0},
		{8 * GiB, 0, GiB, GiB},
		{8 * GiB, 8 * GiB, 0, 0},
		{8 * GiB, 12 * GiB, 0, 4 * GiB},
		{2 * GiB, 12 * GiB, 0, 10 * GiB},
		{8 * GiB, 12 * GiB, 6 * GiB, 6 * GiB},
		{8*GiB - KiB, 8 * GiB, 0, MiB},
	} {
		s := Shape{Memory: c.memory, Disks: Disks{MemoryPeak: c.peak, Swap: c.swap, ScratchOn: InMemory}}
		if got := s.SwapSize(); got != c.want {
			t.Errorf("%v of memory for a peak of %v, %v of swap: %v; want %v", c.memory, c.peak, c.swap, got, c.want)
		}
		for _, d := range s.ScratchDisks() {
			if d.On == InMemory {
				t.Error("swap lies in memory")
			}
		}
	}
}

func TestDiskSpace(t *testing.T) {
	s := Shape{Memory: GiB, Scratch: 2 * GiB, Disks: Disks{Root: 3 * GiB, MemoryPeak: 2 * GiB,
		Volumes: []Volume{{"/fast", MiB, InMemory}, {"/data", 5 * GiB, OnThin}}}}
	if got := s.Quota().Scratch; got != 11*GiB {
		t.Errorf("it takes %v of a quota; want 11G", got)
	}
}
