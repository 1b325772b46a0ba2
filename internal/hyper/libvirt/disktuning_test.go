package libvirt

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// TestDiskTuning: what the host says of disks is in the domain, what the VM says goes before it, and a cache that keeps
// a service from moving is told.
func TestDiskTuning(t *testing.T) {
	machine := func(p farm.Purpose, cache string, tuning hyper.DiskTuning) hyper.Machine {
		return hyper.Machine{ID: "4a7c4e5c-3f5f-4d8c-9b3c-0b9a5a3d1e11", Name: "grange-4a7c4e5c", Purpose: p,
			Cache:  cache,
			Tuning: tuning, Plan: farm.Plan{Guest: farm.GuestTopology{Sockets: 1, Cores: 2, Threads: 1},
				IOThread: farm.CPURange(0, 2), VCPUs: farm.EachCPU([]int{0, 1}),
				Cells: []farm.GuestCell{{VCPUs: farm.CPURange(0, 2), Memory: farm.GiB}}},
			Disks: []hyper.Disk{{Serial: "root", Path: "/d/root.qcow2", Format: "qcow2"},
				{Serial: "scratch", Path: "/d/scratch.raw", Format: "raw"},
				{Serial: "swap", Path: "/d/swap.raw", Format: "raw", Block: true}}}
	}
	for name, c := range map[string]struct {
		m     hyper.Machine
		words []string
		warns bool
	}{
		"compute": {machine("", "", hyper.DiskTuning{}), []string{"<iothreads>1<", `cache="writeback"`, `io="threads"`,
			`queues="2"`, `discard="unmap"`, `<source dev="/d/swap.raw">`, `cache="none" error_policy="enospace"`}, false},
		"tuned": {machine("", "", hyper.DiskTuning{Cache: "none", IO: "io_uring", IOThreads: 2, Queues: 8,
			Discard: "ignore"}), []string{"<iothreads>2<", `<iothreadpin iothread="2" cpuset="0-1">`, `cache="none"`, `io="io_uring"`, `queues="8"`, `iothread="2"`,
			`discard="ignore"`}, false},
		"the VM's own": {machine("", "unsafe", hyper.DiskTuning{Cache: "none", IO: "native"}), []string{
			`cache="unsafe"`, `io="threads"`}, false},
		"service":         {machine(farm.PurposeService, "", hyper.DiskTuning{}), []string{`io="native"`}, false},
		"cached service":  {machine(farm.PurposeService, "writeback", hyper.DiskTuning{}), nil, true},
		"service, policy": {machine(farm.PurposeService, "", hyper.DiskTuning{Cache: "writethrough"}), nil, true},
	} {
		text, applied, err := host{accel: KVM}.domain(c.m)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: no %s in\n%s", name, word, text)
			}
		}
		if warned := strings.Contains(strings.Join(applied.Warnings, "\n"), "in the way of moving"); warned != c.warns {
			t.Errorf("%s: warned is %t: %q", name, warned, applied.Warnings)
		}
	}
}
