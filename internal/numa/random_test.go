package numa_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// TestRandom fills random hosts with random VMs and holds every promise of Plan, Check and the claim arithmetic.
func TestRandom(t *testing.T) {
	rounds := 8000
	if testing.Short() {
		rounds = 300
	}
	placed, refused := map[string]int{}, map[string]int{}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		g := newGame(r)
		for step := range 10 {
			what := fmt.Sprintf("seed %d step %d", seed, step)
			if len(g.running) > 0 && r.IntN(4) == 0 {
				g.end(r.IntN(len(g.running)))
			}
			req := g.request()
			plan, err := numa.Plan(g.room, req)
			again, _ := numa.Plan(g.room, req)
			if d := cmp.Diff(plan, again); d != "" {
				t.Fatalf("%s: two answers:\n%s", what, d)
			}
			if err != nil {
				refused[kind(req)]++
				g.checkRefusal(t, what, req, err)
			} else {
				placed[kind(req)]++
				g.checkPlan(t, what, req, plan)
				g.take(t, what, plan)
			}
			if t.Failed() {
				t.Fatalf("%s: request %+v, plan %+v, error %v, host %+v, room %+v", what, req, plan, err,
					g.room.Topology, g.room.Nodes)
			}
		}
	}
	t.Logf("placed %v, refused %v", placed, refused)
	for kind, n := range placed {
		if n < rounds/10 || refused[kind] < rounds/20 {
			t.Errorf("the generator has become one-sided: %d %s placed, %d refused", n, kind, refused[kind])
		}
	}
}

func kind(r numa.Request) string {
	switch {
	case len(r.Each) > 0:
		return "each"
	case r.Cells > 1:
		return "cells"
	case r.Cells == 1:
		return "one cell"
	case r.CPU == farm.Shared:
		return "shared"
	}
	return "auto " + string(r.Threads)
}

// game is one random host and what runs on it.
type game struct {
	r       *rand.Rand
	room    numa.Room
	reserve numa.Reserve
	bases   map[int]farm.Bytes // NodeRoom.Base
	running []farm.Plan
}

// fresh is the room of the host beside plans, made without the rooms before it.
func (g *game) fresh(t farm.Topology, plans []farm.Plan) numa.Room {
	room := numa.NewRoom(t, g.reserve, plans)
	for id, base := range g.bases {
		n := room.Nodes[id]
		n.Base = base
		room.Nodes[id] = n
	}
	return room
}

func newGame(r *rand.Rand) *game {
	t := randomHost(r)
	g := &game{r: r, reserve: numa.Reserve{Memory: farm.Bytes(r.IntN(20)) * farm.MiB, CPUs: some(r, t.Online, 8),
		Shared: map[int]numa.SharedRoom{}}, bases: map[int]farm.Bytes{}}
	for _, n := range t.Nodes {
		if r.IntN(6) == 0 {
			g.bases[n.ID] = []farm.Bytes{64 * farm.KiB, 4 * farm.MiB}[r.IntN(2)]
		}
		if pool := some(r, n.CPUs.Minus(g.reserve.CPUs), 2); !pool.Empty() {
			g.reserve.Shared[n.ID] = numa.SharedRoom{CPUs: pool, VCPUs: r.IntN(4 * pool.Len()),
				Memory: farm.Bytes(r.IntN(20)) * 2 * farm.MiB}
		}
	}
	g.room = g.fresh(t, nil)
	return g
}

// randomHost has few of everything: cores with one, two or four threads or both kinds, nodes without memory or without
// CPUs, one cache or several on a node.
func randomHost(r *rand.Rand) farm.Topology {
	var t farm.Topology
	cpu, perSocket, smt, hybrid := 0, 1+r.IntN(2), []int{1, 2, 2, 4}[r.IntN(4)], r.IntN(4) == 0
	for id := range 1 + r.IntN(4) {
		n := farm.Node{ID: id * (1 + r.IntN(2) + id), Memory: farm.Bytes(r.IntN(16)) * 4 * farm.MiB}
		if id == 0 {
			n.Memory += 8 * farm.MiB
		}
		for _, size := range []farm.Bytes{2 * farm.MiB, 8 * farm.MiB} {
			if most := int(n.Memory / (3 * size)); most > 0 && r.IntN(2) == 0 {
				n.Pages = append(n.Pages, farm.HugePages{Size: size, Total: r.IntN(most + 1)})
			}
		}
		var inNode, shared []int
		for range r.IntN(5) {
			var threads []int
			for range smt - number(hybrid && r.IntN(2) == 0)*(smt-1) {
				threads = append(threads, cpu)
				cpu++
			}
			t.Cores = append(t.Cores,
				farm.Core{Socket: id / perSocket, Node: n.ID, Threads: farm.NewCPUSet(threads...)})
			inNode, shared = append(inNode, threads...), append(shared, threads...)
			if r.IntN(3) == 0 {
				t.L3, shared = append(t.L3, farm.NewCPUSet(shared...)), nil
			}
		}
		n.CPUs = farm.NewCPUSet(inNode...)
		t.Online = t.Online.Or(n.CPUs)
		t.Nodes = append(t.Nodes, n)
	}
	if r.IntN(2) == 0 {
		for i := range t.Nodes {
			row := make([]int, len(t.Nodes))
			for j := range row {
				row[j] = 10 + 10*max(i-j, j-i)
			}
			t.Distance = append(t.Distance, row)
		}
	}
	return t
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// some is a random subset: half the time empty, else about one CPU in n.
func some(r *rand.Rand, of farm.CPUSet, n int) farm.CPUSet {
	var ids []int
	if r.IntN(2) == 0 {
		for cpu := range of.All() {
			if r.IntN(n) == 0 {
				ids = append(ids, cpu)
			}
		}
	}
	return farm.NewCPUSet(ids...)
}

var pageLists = [][]farm.Bytes{nil, nil, {0}, {2 * farm.MiB}, {8 * farm.MiB, 2 * farm.MiB}, {8 * farm.MiB, 0},
	{2 * farm.MiB, 8 * farm.MiB, 0}}

func (g *game) request() numa.Request {
	t := g.room.Topology
	req := numa.Request{VCPUs: 1 + g.r.IntN(6), Memory: farm.Bytes(1+g.r.IntN(12)) * 2 * farm.MiB, Allowed: t.Online,
		Service: g.reserve.CPUs}
	pages := func() []farm.Bytes { return pageLists[g.r.IntN(len(pageLists))] }
	threads := func() farm.ThreadPolicy {
		return []farm.ThreadPolicy{farm.PreferSiblings, farm.PreferSiblings, farm.RequireSiblings,
			farm.IsolateCores}[g.r.IntN(4)]
	}
	req.Pages = pages()
	if g.r.IntN(3) == 0 {
		req.Allowed = t.Online.Minus(some(g.r, t.Online, 3))
	}
	if g.r.IntN(4) == 0 {
		req.Emulator = farm.EmulatorIsolate
	}
	if g.r.IntN(5) == 0 {
		req.CPU, req.VCPUs = farm.Shared, 1+g.r.IntN(3)
	} else {
		req.Threads = threads()
	}
	switch g.r.IntN(5) {
	case 0:
		req.Cells = 1
	case 1:
		req.Cells = 2 + g.r.IntN(2)
		req.VCPUs, req.Memory = req.VCPUs/2*req.Cells+req.Cells, req.Memory/4*farm.Bytes(
			req.Cells)+2*farm.MiB*farm.Bytes(req.Cells)
	case 2:
		req.VCPUs, req.Memory, req.CPU, req.Threads, req.Contiguous = 0, 0, farm.Pinned, farm.PreferSiblings, g.r.IntN(
			2) == 0
		req.Each = make([]numa.CellRequest, 1+g.r.IntN(3))
		ids := g.r.Perm(len(req.Each) + g.r.IntN(5))
		for i := range req.Each {
			own := []int{ids[i]}
			for _, id := range ids[len(req.Each):] {
				if id%len(req.Each) == i {
					own = append(own, id)
				}
			}
			c := numa.CellRequest{VCPUs: farm.NewCPUSet(own...), Memory: farm.Bytes(1+g.r.IntN(8)) * 2 * farm.MiB,
				Pages: pages(), Threads: threads()}
			if g.r.IntN(3) == 0 {
				c.Floating = some(g.r, c.VCPUs, 2)
			}
			req.Each[i] = c
		}
		req.Cells = 0
	}
	return valid(req)
}

// valid rounds memory up so that some page size divides it.
func valid(req numa.Request) numa.Request {
	round := func(memory farm.Bytes, pages []farm.Bytes, pieces farm.Bytes) farm.Bytes {
		smallest := farm.Bytes(2 * farm.MiB)
		if !slices.Contains(pages, 0) && !slices.Contains(pages, 2*farm.MiB) && len(pages) > 0 {
			smallest = slices.Min(pages)
		}
		return max((memory+smallest-1)/smallest, pieces) * smallest
	}
	if cells := farm.Bytes(req.Cells); cells > 0 {
		req.Memory = round(req.Memory/cells, req.Pages, 1) * cells
	} else {
		req.Memory = round(req.Memory, req.Pages, number0(len(req.Each) == 0))
	}
	for i, c := range req.Each {
		req.Each[i].Memory = round(c.Memory, c.Pages, farm.Bytes(pieces(c.VCPUs)))
	}
	return req
}

func number0(b bool) farm.Bytes { return farm.Bytes(number(b)) }

func (g *game) end(i int) {
	g.room = g.room.Give(g.running[i])
	g.running = slices.Delete(g.running, i, i+1)
}

func (g *game) take(t *testing.T, what string, p farm.Plan) {
	t.Helper()
	before := g.room
	after, err := before.Take(p)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if back := after.Give(p); !back.Equal(before) {
		t.Errorf("%s: give does not undo take:\n%+v\n%+v", what, before, back)
	}
	if _, err := after.Take(p); err == nil && !p.Held().Empty() {
		t.Errorf("%s: taken twice", what)
	}
	g.running = append(g.running, p)
	if anew := g.fresh(before.Topology, g.running); !anew.Equal(after) {
		t.Errorf("%s: the room built anew differs:\n%+v\n%+v", what, anew, after)
	}
	byHand := numa.Room{Topology: after.Topology, Reserve: g.reserve, Free: after.Free, Nodes: after.Nodes}
	req := g.request()
	one, _ := numa.Plan(after, req)
	two, _ := numa.Plan(byHand, req)
	if d := cmp.Diff(one, two); d != "" {
		t.Errorf("%s: another plan for a room made by hand:\n%s", what, d)
	}
	g.room = after
}

func (g *game) checkRefusal(t *testing.T, what string, req numa.Request, err error) {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Hint == "" || e.Message == "" {
		t.Fatalf("%s: %v is not for users", what, err)
	}
	switch e.Code {
	case farm.CodeNoRoom:
		if e.Kind != farm.NoCapacity || (brute{g.room, req}).fits(0) {
			t.Errorf("%s: refused although it fits: %v", what, err)
		}
	case farm.CodeTooBig:
		if e.Kind != farm.Invalid || (brute{g.fresh(g.room.Topology, nil), req}).fits(0) {
			t.Errorf("%s: called too big although it fits an empty host: %v", what, err)
		}
	default:
		t.Errorf("%s: %s: %v", what, e.Code, err)
	}
}

// TestManyNodes matches cells of many sizes with eight nodes that have as different room.
func TestManyNodes(t *testing.T) {
	const size = 2 * farm.MiB
	host := topologytest.WithPages(topologytest.EPYC256(), size, 1024)
	placed, refused := 0, 0
	for seed := range 400 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		g := &game{r: r, room: numa.NewRoom(host, numa.Reserve{}, nil)}
		for _, n := range host.Nodes {
			g.room.Free = g.room.Free.Minus(farm.NewCPUSet(n.CPUs.List()[r.IntN(32):]...))
			g.room.Nodes[n.ID].Pages[size] = 100 + r.IntN(900)
		}
		req, vcpus := numa.Request{Allowed: host.Online}, 0
		for range 3 + r.IntN(6) {
			n := 1 + r.IntN(20)
			req.Each = append(req.Each,
				numa.CellRequest{VCPUs: farm.CPURange(vcpus, vcpus+n), Memory: farm.Bytes(1+r.IntN(700)) * size,
					Pages: []farm.Bytes{size}})
			vcpus += n
		}
		plan, err := numa.Plan(g.room, req)
		what := fmt.Sprintf("seed %d", seed)
		if err != nil {
			refused++
			if fits(g.room, req) {
				t.Errorf("%s: refused although it fits: %v", what, err)
			}
			continue
		}
		placed++
		g.checkPlan(t, what, req, plan)
	}
	t.Logf("%d placed, %d refused", placed, refused)
	if min(placed, refused) < 50 {
		t.Error("the generator has become one-sided")
	}
}

// fits tries all ways to put the request's pinned cells on nodes. It counts only CPUs and pages of the first size.
func fits(room numa.Room, req numa.Request) bool {
	used := make([]bool, len(room.Topology.Nodes))
	var place func(c int) bool
	place = func(c int) bool {
		if c == len(req.Each) {
			return true
		}
		want := req.Each[c]
		for i, n := range room.Topology.Nodes {
			if used[i] || n.CPUs.Common(room.Free) < want.VCPUs.Len() ||
				farm.Bytes(room.Nodes[n.ID].Pages[want.Pages[0]])*want.Pages[0] < want.Memory {
				continue
			}
			used[i] = true
			ok := place(c + 1)
			used[i] = false
			if ok {
				return true
			}
		}
		return false
	}
	return place(0)
}

// A room may be given another topology by hand; what was worked out of the old one must not be used.
func TestRoomWithAnotherTopology(t *testing.T) {
	room := numa.NewRoom(topologytest.CERN2650v2(), numa.Reserve{}, nil)
	// the same CPUs, other cores
	other := topology.Grid{Sockets: 2, CoresPerNode: 16, NodeMemory: 32 * farm.GiB}.Topology()
	room.Topology = other
	got, err := numa.Plan(room, numa.Request{VCPUs: 4, Memory: farm.GiB, Allowed: other.Online})
	if err != nil || got.CPUs().String() != "0-3" || got.Guest.Threads != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
