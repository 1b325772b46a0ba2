package numa_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// FuzzPlan holds that no request, absurd as it may be, makes the planner panic, take very much memory, or give a plan
// that the room cannot take.
func FuzzPlan(f *testing.F) {
	host := topologytest.WithPages(topologytest.CERN2650v2(), 2*farm.MiB, 4096)
	room := numa.NewRoom(host, numa.Reserve{Shared: map[int]numa.SharedRoom{1: {CPUs: cpusOf("8,24"), VCPUs: 4,
		Memory: farm.GiB}}}, nil)
	f.Add(8, uint64(farm.GiB), uint64(0), uint64(0), "", "", "", 0, "", uint64(0), "", false, 0, 0, 0)
	f.Add(-1, uint64(1)<<63, uint64(3), uint64(1)<<63, "shared", "require", "isolate", -5, "0-3", uint64(farm.GiB),
		"1-2", true, 1, -1, 1<<40)
	f.Add(1<<40, uint64(2*farm.GiB), uint64(2*farm.MiB), uint64(4096), "", "isolate", "isolate", 2, "1,3",
		uint64(1)<<62, "", true, 4, 2, 1)
	f.Add(0, uint64(0), uint64(0), uint64(2*farm.MiB), "?", "!", "*", 1<<40, "0-8191", uint64(2*farm.MiB), "0-8191",
		true, 0, 0, 0)
	f.Fuzz(func(t *testing.T, vcpus int, memory, page, other uint64, cpu, threads, emulator string, cells int,
		cell string, cellMemory uint64, floating string, contiguous bool, sockets, cores, smt int) {
		req := numa.Request{VCPUs: vcpus, Memory: farm.Bytes(memory),
			Pages: []farm.Bytes{farm.Bytes(page), farm.Bytes(other)}, Allowed: host.Online, CPU: farm.CPUPolicy(cpu),
			Threads: farm.ThreadPolicy(threads), Emulator: farm.EmulatorPolicy(emulator), Cells: cells,
			Contiguous: contiguous, Guest: farm.GuestTopology{Sockets: sockets, Cores: cores, Threads: smt}}
		if cell != "" {
			rest := farm.CPURange(0, min(max(vcpus, 0), 64)).Minus(cpusOf(cell))
			req.Each = []numa.CellRequest{
				{VCPUs: cpusOf(cell), Floating: cpusOf(floating), Memory: farm.Bytes(cellMemory), Pages: req.Pages,
					Threads: req.Threads},
				{VCPUs: rest, Memory: farm.Bytes(memory - cellMemory)},
			}
		}
		p, err := numa.Plan(room, req)
		if e := new(farm.Error); err != nil && (!errors.As(err, &e) || e.Hint == "") {
			t.Fatalf("%v is not for users", err)
		}
		if err != nil {
			return
		}
		left, err := room.Take(p)
		if err != nil {
			t.Fatalf("%v: %+v", err, p)
		}
		if back := left.Give(p); !back.Equal(room) {
			t.Fatal(cmp.Diff(room.Nodes, back.Nodes))
		}
	})
}

// cpusOf is a set, empty where text is none.
func cpusOf(text string) farm.CPUSet {
	set, err := farm.ParseCPUSet(text)
	if err != nil {
		return farm.CPUSet{}
	}
	return set
}
