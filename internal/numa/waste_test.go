package numa_test

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func TestWaste(t *testing.T) {
	const size = 2 * farm.MiB
	small := numa.NewRoom(topologytest.WithPages(topologytest.CERN2630v3(), size, 30*512), numa.Reserve{}, nil)
	big := numa.NewRoom(topologytest.WithPages(topologytest.EPYC256(), size, 120*512), numa.Reserve{}, nil)
	ask := func(vcpus, gib int) numa.Request {
		return numa.Request{VCPUs: vcpus, Memory: farm.Bytes(gib) * farm.GiB, Pages: []farm.Bytes{size}, Cells: 1}
	}
	with := func(room numa.Room, reqs ...numa.Request) numa.Room {
		for _, req := range reqs {
			req.Allowed = room.Topology.Online
			p, err := numa.Plan(room, req)
			if err != nil {
				t.Fatal(err)
			}
			if room, err = room.Take(p); err != nil {
				t.Fatal(err)
			}
		}
		return room
	}
	left := func(room numa.Room, on string) numa.Room {
		room.Free = cpus(t, on)
		return room
	}
	cost := func(room numa.Room, req numa.Request) numa.Cost {
		req.Allowed = room.Topology.Online
		p, err := numa.Plan(room, req)
		if err != nil {
			t.Fatal(err)
		}
		return numa.Waste(room, p)
	}
	for name, c := range map[string]struct {
		better, worse numa.Room
		req           numa.Request
	}{
		"an empty host stays empty": {with(small, ask(4, 8)), small, ask(4, 8)},
		"a hole that fits":          {with(small, ask(12, 12)), with(small, ask(8, 8)), ask(4, 8)},
		"an empty node stays empty": {with(small, ask(8, 8), ask(16, 16)),
			with(small, ask(16, 16)), ask(8, 8)},
		"much memory where threads are short":     {with(small, ask(12, 1)), with(small, ask(4, 20)), ask(2, 10)},
		"little memory where memory is short":     {with(small, ask(4, 20)), with(small, ask(12, 1)), ask(4, 1)},
		"no core shared":                          {left(small, "0,16"), left(small, "0,1"), ask(2, 2)},
		"a hole that fits rather than a big host": {with(small, ask(12, 12)), big, ask(4, 8)},
	} {
		t.Run(name, func(t *testing.T) {
			if better, worse := cost(c.better, c.req), cost(c.worse, c.req); !better.Less(worse) {
				t.Errorf("costs %.2f, the other %.2f", better, worse)
			}
		})
	}
}

// A VM that floats takes no CPU for itself, and still goes where the pool is nearly full.
func TestWasteOfPools(t *testing.T) {
	host := topologytest.CERN2650v2()
	pool := numa.SharedRoom{CPUs: cpus(t, "0-3,16-19"), VCPUs: 32, Memory: 16 * farm.GiB}
	empty := numa.NewRoom(host, numa.Reserve{Shared: map[int]numa.SharedRoom{0: pool}}, nil)
	req := numa.Request{VCPUs: 4, Memory: farm.GiB, CPU: farm.Shared, Allowed: host.Online}
	p, err := numa.Plan(empty, req)
	if err != nil {
		t.Fatal(err)
	}
	fuller, err := empty.Take(p)
	if err != nil {
		t.Fatal(err)
	}
	if there, here := numa.Waste(fuller, p), numa.Waste(empty, p); !there.Less(here) {
		t.Errorf("costs %.2f where others float, %.2f where none do", there, here)
	}
}
