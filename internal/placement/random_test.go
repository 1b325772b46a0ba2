package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// TestRandom lets VMs come and go, and hosts and cells change, and holds the promises of Fleet after each step.
func TestRandom(t *testing.T) {
	rounds, steps := 100, 150
	if testing.Short() {
		rounds = 20
	}
	placed, refused := 0, 0
	for seed := range rounds {
		g := newGame(rand.New(rand.NewPCG(uint64(seed), 11)))
		for step := range steps {
			what := fmt.Sprintf("seed %d step %d", seed, step)
			switch n := g.r.IntN(20); {
			case n < 11:
				if g.claim(t, what) {
					placed++
				} else {
					refused++
				}
			case n < 17:
				g.release()
			case n < 19:
				g.changeHost()
			default:
				g.changeCell()
			}
			if step%10 == 9 || t.Failed() {
				g.compare(t, what)
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("placed %d, refused %d", placed, refused)
	if placed < refused/3 || refused < placed/20 {
		t.Error("the generator has become one-sided")
	}
}

// game is a random fleet, with all that was told of it.
type game struct {
	r     *rand.Rand
	fleet *Fleet
	hosts map[string]Host
	cells map[string]farm.Cell
	vms   map[string]Placed
	next  int
}

func newGame(r *rand.Rand) *game {
	g := &game{r: r, fleet: NewFleet(), hosts: map[string]Host{}, cells: map[string]farm.Cell{},
		vms: map[string]Placed{}}
	for i := range 2 {
		c := g.cell(fmt.Sprintf("c%d", i))
		g.cells[c.Name] = c
		g.fleet.SetCell(c)
	}
	for i := range 3 + r.IntN(6) {
		h := g.host(fmt.Sprintf("h%d", i))
		g.hosts[h.ID] = h
		g.fleet.Set(h)
	}
	return g
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (g *game) cell(name string) farm.Cell {
	c := farm.Cell{Name: name, Broker: farm.BrokerGrange, Packing: one(g.r, farm.Pack, farm.Spread, farm.Group),
		KeepWhole: one(g.r, 0, 0, 1, 2), Overcommit: one(g.r, 0, 1, 1, 1.5), PerHost: one(g.r, 0, 0, 3),
		Closed: g.r.IntN(12) == 0}
	if g.r.IntN(5) == 0 {
		c.Limits = farm.Quota{VMs: 8, CPUs: 40}
	}
	return c
}

func (g *game) host(id string) Host {
	grid := topology.Grid{Sockets: 1 + g.r.IntN(2), NodesPerSocket: 1 + g.r.IntN(2), CoresPerNode: 2 + g.r.IntN(5),
		Threads: 1 + g.r.IntN(2), NodeMemory: 8 * farm.GiB}
	t := grid.Topology()
	if g.r.IntN(2) == 0 {
		t = topologytest.WithPages(t, 2*farm.MiB, g.r.IntN(2500))
	}
	if g.r.IntN(3) == 0 { // a pool that is uneven
		t = topologytest.WithPages(t, farm.GiB, 2)
		t.Nodes[0].Pages[len(t.Nodes[0].Pages)-1].Total = 1
	}
	h := Host{ID: id, Name: "name-" + id, Cell: one(g.r, "c0", "c1"), Topology: t,
		Scratch: farm.Bytes(g.r.IntN(5)) * 10 * farm.GiB, Labels: map[string]string{"kind": one(g.r, "a", "b")},
		Networks: one(g.r, nil, []string{"n1"}, []string{"n1", "n2"}),
		Images:   one(g.r, nil, []string{"i1"}, []string{"i1", "i2"})}
	h.Bandwidth = one(g.r, 0, farm.Rate(1e9), 1e9, 10e9)
	if g.r.IntN(3) == 0 {
		h.Labels["gpu"] = ""
	}
	if g.r.IntN(4) == 0 {
		h.Reserve = farm.HostReserve{CPUs: farm.NewCPUSet(0), Memory: farm.GiB}
	}
	if g.r.IntN(10) == 0 {
		h.Refuses, h.Closed = "closed", g.r.IntN(2) == 0
	}
	return h
}

func (g *game) request() Request {
	g.next++
	cpus := one(g.r, 1, 2, 2, 4, 4, 6, 8, 12)
	s := farm.Shape{CPUs: cpus, Memory: farm.Bytes(cpus*one(g.r, 1, 1, 2)) * 512 * farm.MiB, Network: farm.NetworkNone,
		Pages:    one(g.r, nil, nil, []farm.Bytes{2 * farm.MiB}, []farm.Bytes{farm.GiB, 2 * farm.MiB, 0}),
		Threads:  one(g.r, "", "", farm.IsolateCores, farm.RequireSiblings),
		Emulator: one(g.r, "", "", farm.EmulatorIsolate), Scratch: one(g.r, 0, 0, 5*farm.GiB)}
	if cpus%2 == 0 && s.Memory%(2*farm.GiB) == 0 {
		s.Cells = one(g.r, 0, 0, 1, 2)
	}
	s.Bandwidth = one(g.r, farm.Bandwidth{}, farm.Bandwidth{}, farm.Bandwidth{In: 400e6},
		farm.Bandwidth{In: 100e6, Out: 600e6})
	r := Request{VM: fmt.Sprintf("v%d", g.next), Project: one(g.r, "p1", "p2", "p3"), Shape: s,
		Cells: one(g.r, []string{"c0"}, []string{"c1"}, []string{"c1", "c0"}), Image: one(g.r, "", "i1", "i2"),
		Network: one(g.r, "", "", "", "n1", "n2"), Prefer: one(g.r, "", "i1", "i2", "i3")}
	r.Needs = one(g.r, nil, nil, nil, nil, []string{"gpu"}, []string{"kind=a"}, []string{"kind!=a", "!gpu"})
	if g.r.IntN(3) == 0 {
		r.Affinity = one(g.r, farm.Together, farm.Apart, farm.SoftTogether, farm.SoftApart)
		r.Group = "p/" + string(r.Affinity)
	}
	if g.r.IntN(8) == 0 {
		r.Avoid = []string{"h0", "h1"}
	}
	return r
}

// claim asks for a random VM, and compares with an answer of every host.
func (g *game) claim(t *testing.T, what string) bool {
	r := g.request()
	able := map[string]bool{}
	for id, h := range g.fleet.hosts {
		if a := g.fleet.answer(r, h); a.Fits {
			able[id] = true
		}
	}
	p, err := g.fleet.Claim(r)
	if err != nil {
		if len(able) > 0 {
			t.Errorf("%s: %v, and hosts %v have room for %+v", what, err, slices.Sorted(maps.Keys(able)), r)
		}
		return false
	}
	if !able[p.Host] {
		t.Errorf("%s: it went to %s, which answers %+v", what, p.Host, g.fleet.hosts[p.Host])
	}
	g.vms[r.VM] = p
	g.disjoint(t, what)
	return true
}

// disjoint holds that no thread belongs to two VMs. Only claims that changes of their host made old may be beside
// others.
func (g *game) disjoint(t *testing.T, what string) {
	owner := map[string]string{}
	for vm, p := range g.vms {
		if h := g.fleet.hosts[p.Host]; h == nil || h.crowded {
			continue
		}
		for cpu := range p.Plan.Held().All() {
			key := fmt.Sprint(p.Host, " ", cpu)
			if owner[key] != "" {
				t.Errorf("%s: %s and %s share thread %s", what, owner[key], vm, key)
			}
			owner[key] = vm
		}
	}
}

func (g *game) release() {
	if len(g.vms) == 0 {
		return
	}
	vm := one(g.r, slices.Sorted(maps.Keys(g.vms))...)
	g.fleet.Release(vm)
	delete(g.vms, vm)
}

func (g *game) changeHost() {
	id := one(g.r, slices.Sorted(maps.Keys(g.hosts))...)
	old := g.hosts[id]
	switch h := g.host(id); g.r.IntN(8) {
	case 0:
		g.fleet.Remove(id)
		g.fleet.Set(old)
	case 1: // another machine under its name
		g.hosts[id] = h
		g.fleet.Set(h)
	case 2:
		old.Labels = h.Labels
		g.hosts[id] = old
		g.fleet.Label(id, h.Labels)
	case 3:
		old.Networks = h.Networks
		g.hosts[id] = old
		g.fleet.Connect(id, h.Networks)
	default: // the same with other words
		h.Topology, h.Cell = old.Topology, old.Cell
		g.hosts[id] = h
		g.fleet.Set(h)
	}
}

func (g *game) changeCell() {
	c := g.cell(one(g.r, "c0", "c1"))
	g.cells[c.Name] = c
	g.fleet.SetCell(c)
}

// compare holds the fleet to be what a new one would be, told the same in another order.
func (g *game) compare(t *testing.T, what string) {
	t.Helper()
	anew := NewFleet()
	for _, p := range g.vms {
		anew.Restore(p)
	}
	for _, h := range g.hosts {
		anew.Set(h)
	}
	for _, c := range g.cells {
		anew.SetCell(c)
	}
	if d := cmp.Diff(state(anew), state(g.fleet)); d != "" {
		t.Errorf("%s: one built anew is not as the one that was kept:\n%s", what, d)
	}
	for _, c := range g.fleet.cells {
		for _, k := range c.classes {
			g.compareClass(t, what, k)
		}
	}
}

// state is what a fleet says of itself, without the order in which things were told.
func state(f *Fleet) map[string]string {
	out := map[string]string{"groups": fmt.Sprint(f.groups)}
	for id, h := range f.hosts {
		out[id] = fmt.Sprint(h.room.Free, h.room.Nodes, h.crowded, h.scratch, len(h.vms), h.outline)
	}
	for name, c := range f.cells {
		members := map[string]int{}
		for project, slots := range c.members {
			for slot, n := range slots {
				members[project+" "+c.slots[slot].ID] = n
			}
		}
		has := map[string]bool{}
		for kind, owners := range map[string]owners{"image ": c.images, "network ": c.networks} {
			for name, set := range owners {
				for slot, in := range set.in {
					if in {
						has[kind+name+" "+c.slots[slot].ID] = true
					}
				}
				if set.n == 0 || set.n != count(set.in) {
					has[fmt.Sprint("miscounted: ", kind, name)] = true
				}
			}
		}
		out[name] = fmt.Sprint(c.used, c.unused, members, has)
	}
	return out
}

func count(in []bool) (n int) {
	for _, is := range in {
		if is {
			n++
		}
	}
	return n
}

// compareClass holds a class to answer what it would if it were new. It may know more: which hosts refused, and what
// plans cost.
func (g *game) compareClass(t *testing.T, what string, k *class) {
	t.Helper()
	k.follow()
	var counts [verdicts]int
	for slot, a := range k.answers {
		counts[a.verdict]++
		score, v := k.ask(k.cell.slots[slot])
		if a.verdict != v && !(v == fits && a.verdict == inPieces) {
			t.Errorf("%s: slot %d is %d, not %d", what, slot, a.verdict, v)
		}
		if a.verdict == fits && !a.exact && a.score != score {
			t.Errorf("%s: slot %d has score %v, not %v", what, slot, a.score, score)
		}
		if a.verdict == fits && a.fetches == k.quick.has(int32(slot)) {
			t.Errorf("%s: slot %d fetches image %q: %v", what, slot, k.key.prefer, a.fetches)
		}
		if (a.verdict == fits) != (a.at >= 0) || a.at >= 0 && k.heap[a.at] != int32(slot) {
			t.Errorf("%s: slot %d is at %d of the heap", what, slot, a.at)
		}
	}
	if counts != k.counts {
		t.Errorf("%s: counted %v, not %v", what, k.counts, counts)
	}
	for i := 1; i < len(k.heap); i++ {
		if k.less(k.heap[i], k.heap[(i-1)/2]) {
			t.Errorf("%s: the heap is none at %d", what, i)
		}
	}
}

// FuzzFleet plays games that TestRandom does not.
func FuzzFleet(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(40))
	f.Fuzz(func(t *testing.T, a, b uint64, steps uint8) {
		g := newGame(rand.New(rand.NewPCG(a, b)))
		for step := range int(steps) {
			what := fmt.Sprint("step ", step)
			switch n := g.r.IntN(20); {
			case n < 12:
				g.claim(t, what)
			case n < 17:
				g.release()
			case n < 19:
				g.changeHost()
			default:
				g.changeCell()
			}
		}
		g.compare(t, "at the end")
	})
}
