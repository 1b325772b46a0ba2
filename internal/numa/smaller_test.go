package numa_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// TestSmallerIsTheLargest compares what would fit instead with a search of all numbers of vCPUs.
func TestSmallerIsTheLargest(t *testing.T) {
	rounds := 1500
	if testing.Short() {
		rounds = 200
	}
	found, none := 0, 0
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		room := usedRoom(r)
		req := oversized(r, room.Topology.Online)
		if _, err := numa.Plan(room, req); err == nil {
			continue
		}
		small, ok := numa.Smaller(room, req)
		want := largest(room, req)
		got := 0
		if ok {
			got = small.VCPUs
			found++
			if _, err := numa.Plan(room, small); err != nil {
				t.Errorf("seed %d: %d vCPUs and %v would fit instead: %v", seed, small.VCPUs, small.Memory, err)
			}
		} else {
			none++
		}
		if got != want {
			t.Errorf("seed %d: %d vCPUs would fit instead, the largest are %d; request %+v", seed, got, want, req)
		}
	}
	if found < rounds/4 || none < rounds/50 {
		t.Errorf("the generator has become one-sided: %d found, %d not", found, none)
	}
}

// largest is the most vCPUs, below those of the request, that fit with their part of the memory, rounded down to 2 MiB
// or to a page that will do in each cell.
func largest(room numa.Room, req numa.Request) int {
	cells := farm.Bytes(max(len(req.Each), req.Cells, 1))
	pages := req.Pages
	if len(req.Each) > 0 {
		pages = req.Each[0].Pages
	}
	units := []farm.Bytes{2 * farm.MiB * cells}
	if slices.Contains(pages, farm.GiB) {
		units = append(units, farm.GiB*cells)
	}
	for n := req.VCPUs - 1; n > 0; n-- {
		memory := req.Memory * farm.Bytes(n) / farm.Bytes(req.VCPUs)
		for _, unit := range units {
			small := req
			small.VCPUs, small.Memory = n, memory/unit*unit
			if small.Memory < farm.MinMemory {
				continue
			}
			if len(req.Each) > 0 {
				if n%len(req.Each) != 0 {
					continue
				}
				small.Each = rows(n, small.Memory, req.Each)
			}
			if _, err := numa.Plan(room, small); err == nil {
				return n
			}
		}
	}
	return 0
}

// rows are equal cells that hold vCPUs in a row.
func rows(vcpus int, memory farm.Bytes, like []numa.CellRequest) []numa.CellRequest {
	out, per := slices.Clone(like), vcpus/len(like)
	for i := range out {
		out[i].VCPUs, out[i].Memory = farm.CPURange(i*per, (i+1)*per), memory/farm.Bytes(len(like))
	}
	return out
}

// usedRoom is a host on which some CPUs, memory and pages are taken.
func usedRoom(r *rand.Rand) numa.Room {
	host := topology.Grid{Sockets: 1 + r.IntN(3), CoresPerNode: 1 + r.IntN(5), Threads: 1 + r.IntN(2),
		NodeMemory: farm.Bytes(2+r.IntN(6)) * farm.GiB}.Topology()
	for i := range host.Nodes {
		if n := &host.Nodes[i]; r.IntN(2) == 0 {
			n.Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: r.IntN(512)}, {Size: farm.GiB, Total: r.IntN(2)}}
		}
	}
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	for cpu := range host.Online.All() {
		if r.IntN(4) == 0 {
			room.Free = room.Free.Minus(farm.NewCPUSet(cpu))
		}
	}
	return room
}

// oversized asks for about as much as a host of usedRoom has, or more.
func oversized(r *rand.Rand, allowed farm.CPUSet) numa.Request {
	cells := 1 + r.IntN(3)
	req := numa.Request{VCPUs: cells * (1 + r.IntN(10)), Memory: farm.Bytes(cells*(1+r.IntN(60))) * 128 * farm.MiB,
		Allowed: allowed}
	pages := [][]farm.Bytes{nil, {0}, {2 * farm.MiB}, {farm.GiB}, {farm.GiB, 2 * farm.MiB},
		{2 * farm.MiB, 0}}[r.IntN(6)]
	req.Threads = []farm.ThreadPolicy{farm.PreferSiblings, farm.IsolateCores, farm.RequireSiblings}[r.IntN(3)]
	switch r.IntN(3) {
	case 0:
		req.Cells, req.Pages = cells, pages
	case 1:
		req.Pages = pages
	default:
		req.Each = rows(req.VCPUs, req.Memory, slices.Repeat([]numa.CellRequest{{Pages: pages, Threads: req.Threads}},
			cells))
	}
	return req
}
