package main

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// targets are what the recorded traces must reach: placed at least, and less refused with room and fewer shared cores
// than Nova's best order.
var targets = map[string]struct {
	placed       float64
	room, shared int
}{
	"cern32_std":  {99.5, 5, 1},
	"cern32_mem":  {88, 18, 1},
	"cern32_odd":  {97.5, 71, 177},
	"epyc256_std": {100, 46, 1},
}

func TestRecordedTraces(t *testing.T) {
	for name, want := range targets {
		t.Run(name, func(t *testing.T) {
			p, err := replayNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Placed < want.placed || p.RefusedWithRoom >= want.room || p.SharedCores >= want.shared || p.Split > 0 {
				t.Errorf("%+v, want at least %.1f %% placed, fewer than %d refused with room, fewer than %d shared "+
					"cores, none split", p, want.placed, want.room, want.shared)
			}
		})
	}
}

// TestOtherTraces plays traces of the same statistics that nothing was tuned on: on the average they must be packed
// better than by the order of Nova that places most. One trace says little: placed varies by a point from seed to seed.
func TestOtherTraces(t *testing.T) {
	const seeds = 16
	if testing.Short() {
		t.Skip("replays 48 traces twice")
	}
	for _, name := range []string{"cern32_std", "cern32_mem", "cern32_odd"} {
		t.Run(name, func(t *testing.T) {
			var ours, novas packing
			for seed := range uint64(seeds) {
				tr := generate(name, 100, 5000+seed)
				p, err := replay(tr)
				if err != nil {
					t.Fatal(err)
				}
				if p.Split > 0 {
					t.Errorf("seed %d: %d VMs are split", seed, p.Split)
				}
				n := replayNova(t, tr, bestFit)
				ours.Placed, novas.Placed = ours.Placed+p.Placed/seeds, novas.Placed+n.Placed/seeds
				ours.RefusedWithRoom, novas.RefusedWithRoom =
					ours.RefusedWithRoom+p.RefusedWithRoom, novas.RefusedWithRoom+n.RefusedWithRoom
			}
			t.Logf("placed %.2f %%, Nova's best fit %.2f %%; refused with room %d and %d", ours.Placed, novas.Placed,
				ours.RefusedWithRoom, novas.RefusedWithRoom)
			if ours.Placed < novas.Placed || ours.RefusedWithRoom >= novas.RefusedWithRoom {
				t.Error("Nova's best fit packs better")
			}
		})
	}
}

// TestNovaReplay holds our reading of the traces, and of the hosts' memory, against what was measured: Nova's orders of
// hosts and cells, played on nothing but free threads and pages, give Nova's figures.
func TestNovaReplay(t *testing.T) {
	orders := []func(hosts [][]plainNode) novaChoice{spread, firstFit, bestFit}
	for _, n := range nova {
		if n.trace == "epyc256_std" {
			continue // its VMs at the end depend on ties that were not recorded
		}
		tr, err := readTrace(n.trace)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range n.orders {
			got := replayNova(t, tr, orders[i])
			if got.VMs != want.vms || math.Abs(got.Placed-want.placed) > 0.0501 || got.Refused != want.refused ||
				got.RefusedWithRoom != want.refusedWithRoom {
				t.Errorf("%s, %s: %+v, measured %+v", n.trace, want.name, got, want)
			}
		}
	}
}

// plainNode is what a node has free.
type plainNode struct{ threads, mib int }

// novaChoice orders hosts, and the nodes of one, from the first to be tried.
type novaChoice struct{ host, node func(a, b int) int }

func threadsOf(nodes []plainNode) int {
	sum := 0
	for _, n := range nodes {
		sum += n.threads
	}
	return sum
}

// Nova weighs hosts by free CPUs. Nodes of a host are tried with most free CPUs first, or packed.
func firstFit(hosts [][]plainNode) novaChoice {
	return novaChoice{host: func(a, b int) int { return cmp.Compare(a, b) }}
}

func spread(hosts [][]plainNode) novaChoice {
	return novaChoice{host: func(a, b int) int { return cmp.Compare(threadsOf(hosts[b]), threadsOf(hosts[a])) }}
}

func bestFit(hosts [][]plainNode) novaChoice {
	return novaChoice{host: func(a, b int) int { return cmp.Compare(threadsOf(hosts[a]), threadsOf(hosts[b])) },
		node: func(a, b int) int { return cmp.Compare(a, b) }}
}

func replayNova(t *testing.T, tr trace, order func([][]plainNode) novaChoice) packing {
	t.Helper()
	host, err := tr.host()
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([][]plainNode, tr.Hosts)
	for i := range hosts {
		for _, n := range host.Nodes {
			hosts[i] = append(hosts[i], plainNode{n.CPUs.Len(), n.Pages[0].Total * 2})
		}
	}
	type placed struct {
		event event
		host  int
		nodes []int
	}
	running := map[int]placed{}
	move := func(p placed, sign int) {
		for _, n := range p.nodes {
			hosts[p.host][n].threads += sign * p.event.VCPUs / p.event.Cells
			hosts[p.host][n].mib += sign * p.event.MemoryMiB / p.event.Cells
		}
	}
	var out packing
	for _, e := range tr.Events {
		if e.Event == "depart" {
			if p, ok := running[e.ID]; ok {
				move(p, 1)
				delete(running, e.ID)
			}
			continue
		}
		at, nodes := novaPlace(hosts, order(hosts), e)
		if nodes != nil {
			running[e.ID] = placed{e, at, nodes}
			move(running[e.ID], -1)
			continue
		}
		out.Refused++
		out.RefusedWithRoom += number(slices.ContainsFunc(hosts, func(nodes []plainNode) bool {
			mib := 0
			for _, n := range nodes {
				mib += n.mib
			}
			return threadsOf(nodes) >= e.VCPUs && mib >= e.MemoryMiB
		}))
	}
	for _, p := range running {
		out.Placed += 100 * float64(p.event.VCPUs) / float64(tr.Hosts*host.Online.Len())
	}
	out.VMs = len(running)
	return out
}

func novaPlace(hosts [][]plainNode, order novaChoice, e event) (host int, nodes []int) {
	ids := make([]int, len(hosts))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, order.host)
	for _, h := range ids {
		var able []int
		for n, node := range hosts[h] {
			if node.threads >= e.VCPUs/e.Cells && node.mib >= e.MemoryMiB/e.Cells {
				able = append(able, n)
			}
		}
		if len(able) < e.Cells {
			continue
		}
		slices.SortStableFunc(able, func(a, b int) int {
			x, y := hosts[h][a], hosts[h][b]
			if order.node != nil {
				return cmp.Or(order.node(x.threads, y.threads), cmp.Compare(x.mib, y.mib))
			}
			return cmp.Or(cmp.Compare(y.threads, x.threads), cmp.Compare(y.mib, x.mib))
		})
		return h, able[:e.Cells]
	}
	return 0, nil
}

func TestFleetFillsHoles(t *testing.T) {
	host := withHugePages(topologytest.CERN2630v3())
	empty := numa.NewRoom(host, numa.Reserve{}, nil)
	used := func(vcpus, cells int) numa.Room {
		plan, err := numa.Plan(empty,
			event{VCPUs: vcpus, MemoryMiB: 2048 * vcpus, PageKiB: 2048, Cells: cells}.request(host))
		if err != nil {
			t.Fatal(err)
		}
		room, err := empty.Take(plan)
		if err != nil {
			t.Fatal(err)
		}
		return room
	}
	half := used(8, 1)
	for _, c := range []struct {
		name          string
		vcpus         int
		better, worse numa.Room
	}{
		{"a hole that it fills, before an empty host", 8, half, empty},
		{"a host that is used, before an empty one", 16, half, empty},
	} {
		f := newFleet(c.worse, 2)
		f.rooms[1] = c.better
		if at, _, ok := f.choose(event{VCPUs: c.vcpus, MemoryMiB: 2048 * c.vcpus, PageKiB: 2048,
			Cells: 1}.request(host)); !ok || at != 1 {
			t.Errorf("%s: went to host %d", c.name, at)
		}
	}
}

// TestFleetForgets holds the remembered offers against fresh ones.
func TestFleetForgets(t *testing.T) {
	tr := generate("cern32_odd", 5, 3)
	host, err := tr.host()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(numa.NewRoom(host, numa.Reserve{}, nil), tr.Hosts)
	running := map[int]resident{}
	for _, e := range tr.Events {
		if vm, ok := running[e.ID]; ok && e.Event == "depart" {
			f.give(vm.host, vm.plan)
			delete(running, e.ID)
		}
		if e.Event != "arrive" {
			continue
		}
		fresh := &fleet{rooms: f.rooms, offers: map[shape][]*offer{}}
		at, plan, ok := f.choose(e.request(host))
		if wantAt, _, wantOK := fresh.choose(e.request(host)); at != wantAt || ok != wantOK {
			t.Fatalf("VM %d: host %d %v, want %d %v", e.ID, at, ok, wantAt, wantOK)
		}
		if ok {
			if err := f.take(at, plan); err != nil {
				t.Fatal(err)
			}
			running[e.ID] = resident{at, plan}
		}
	}
}

func TestHalfFull(t *testing.T) {
	for _, q := range append(fitQuestions(withHugePages(topologytest.CERN2630v3())),
		fitQuestions(withHugePages(topologytest.EPYC256()))...) {
		host := q.room.Topology
		lone := 0
		for _, c := range host.Cores {
			lone += number(c.Threads.And(q.room.Free).Len() == 1)
		}
		if q.room.Free.Len()*2 != host.Online.Len() || lone < len(host.Nodes) {
			t.Fatalf("%d of %d threads are free, %d lone siblings", q.room.Free.Len(), host.Online.Len(), lone)
		}
	}
}

func TestMeasureRefusesWrongQuestions(t *testing.T) {
	host := withHugePages(topologytest.CERN2630v3())
	q := []question{{numa.NewRoom(host, numa.Reserve{}, nil),
		numa.Request{VCPUs: 64, Memory: farm.GiB, Allowed: host.Online}}}
	if _, err := measure(1, q, true); err == nil {
		t.Error("a VM that does not fit was measured as one that does")
	}
}
