package numa_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// An outline may not refuse where Plan finds a place.
func TestOutlineNeverRefusesWhatFits(t *testing.T) {
	rounds := 6000
	if testing.Short() {
		rounds = 1000
	}
	said, planned := map[bool]int{}, 0
	var o numa.Outline
	for seed := range rounds {
		g := newGame(rand.New(rand.NewPCG(uint64(seed), 7)))
		for step := range 10 {
			if len(g.running) > 0 && g.r.IntN(4) == 0 {
				g.end(g.r.IntN(len(g.running)))
			}
			req := g.request()
			o.Read(g.room)
			plan, err := numa.Plan(g.room, req)
			d, bad := req.Demand()
			if bad != nil {
				if err == nil {
					t.Fatalf("seed %d step %d: %v, and there is a plan", seed, step, bad)
				}
				continue
			}
			_, short := o.Estimate(&d)
			if err == nil {
				planned++
				if short != numa.ShortOfNothing {
					t.Fatalf("seed %d step %d: short of %d, and there is a plan for %+v", seed, step, short, req)
				}
				g.take(t, fmt.Sprint("seed ", seed), plan)
			} else {
				said[short != numa.ShortOfNothing]++
			}
		}
	}
	t.Logf("%d planned; of the others %d were refused by the outline, %d were not", planned, said[true], said[false])
	if said[true] < said[false] {
		t.Error("the outline lets most of what does not fit through")
	}
}

// Of hosts with whole cores free, the outline knows what a plan costs.
func TestEstimateIsAboutTheWaste(t *testing.T) {
	host := topologytest.WithPages(topologytest.EPYC256(), 2*farm.MiB, 32<<10)
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	r := rand.New(rand.NewPCG(3, 3))
	var o numa.Outline
	for range 60 {
		cpus := []int{2, 4, 8, 16, 32, 64}[r.IntN(6)]
		req := numa.Request{VCPUs: cpus, Memory: farm.Bytes(cpus*(1+r.IntN(3))) * farm.GiB, Allowed: host.Online,
			Pages: []farm.Bytes{2 * farm.MiB, 0}}
		plan, err := numa.Plan(room, req)
		if err != nil {
			continue
		}
		d, err := req.Demand()
		if err != nil {
			t.Fatal(err)
		}
		o.Read(room)
		about, short := o.Estimate(&d)
		if is := numa.Waste(room, plan); short != numa.ShortOfNothing || about < is-3 || about > is+3 {
			t.Errorf("%d vCPUs: about %.2f, is %.2f, short of %d", cpus, about, is, short)
		}
		if room, err = room.Take(plan); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewRoomLike(t *testing.T) {
	cern, epyc := topologytest.CERN2650v2(), topologytest.EPYC256()
	like := numa.NewRoom(cern, numa.Reserve{}, nil)
	for name, host := range map[string]farm.Topology{"the same": topologytest.CERN2650v2(),
		"more memory": topologytest.CERN2630v3(), "another": epyc} {
		reserve := numa.Reserve{CPUs: farm.NewCPUSet(0), Memory: farm.GiB}
		if a, b := numa.NewRoom(host, reserve, nil), numa.NewRoomLike(like, host, reserve, nil); !a.Equal(b) {
			t.Errorf("%s: %+v is not %+v", name, b.Nodes, a.Nodes)
		}
	}
}

func BenchmarkOutline(b *testing.B) {
	host := withPages(topologytest.EPYC256())
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	room.Free = room.Free.Minus(half(host))
	d, err := numa.Request{VCPUs: 8, Memory: 8 * farm.GiB, Pages: []farm.Bytes{2 * farm.MiB}}.Demand()
	if err != nil {
		b.Fatal(err)
	}
	var o numa.Outline
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			o.Read(room)
		}
	})
	b.Run("estimate", func(b *testing.B) {
		o.Read(room)
		for b.Loop() {
			o.Estimate(&d)
		}
	})
}

func withPages(t farm.Topology) farm.Topology { return topologytest.WithPages(t, 2*farm.MiB, 32<<10) }
