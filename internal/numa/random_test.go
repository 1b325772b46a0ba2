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
)

// TestRandom fills random hosts with random VMs and holds every promise of Plan, Check and the claim arithmetic.
func TestRandom(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	placed, refused := 0, 0
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		g := newGame(r)
		for step := range 12 {
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
				refused++
				g.checkRefusal(t, what, req, err)
				continue
			}
			placed++
			g.checkPlan(t, what, req, plan)
			g.take(t, what, plan)
			if t.Failed() {
				t.Fatalf("%s: request %+v, plan %+v, host %+v", what, req, plan, g.room.Topology)
			}
		}
	}
	t.Logf("%d placed, %d refused", placed, refused)
	if placed < rounds || refused < rounds/2 {
		t.Error("the generator has become one-sided")
	}
}

// game is one random host and what runs on it.
type game struct {
	r       *rand.Rand
	room    numa.Room
	reserve numa.Reserve
	running []farm.Plan
}

func newGame(r *rand.Rand) *game {
	var t farm.Topology
	cpu, perSocket := 0, 1+r.IntN(2)
	for id := range 1 + r.IntN(4) {
		n := farm.Node{ID: id * (1 + r.IntN(2) + id), Memory: farm.Bytes(r.IntN(16)) * 64 * farm.MiB}
		if id == 0 {
			n.Memory += farm.GiB
		}
		if half := int(n.Memory / (4 * farm.MiB)); half > 0 && r.IntN(2) == 0 {
			n.Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: r.IntN(half)}}
		}
		var inNode, shared []int
		for range r.IntN(5) {
			var threads []int
			for range 1 + r.IntN(2) {
				threads = append(threads, cpu)
				cpu++
			}
			t.Cores = append(t.Cores, farm.Core{Socket: id / perSocket, Node: n.ID, Threads: farm.NewCPUSet(threads...)})
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
	g := &game{r: r, reserve: numa.Reserve{Memory: farm.Bytes(r.IntN(100)) * farm.MiB, CPUs: some(r, t.Online, 8)}}
	g.room = numa.NewRoom(t, g.reserve, nil)
	return g
}

// some is a random subset: half the time empty, else about one CPU in n.
func some(r *rand.Rand, of farm.CPUSet, n int) farm.CPUSet {
	var ids []int
	if r.IntN(2) == 0 {
		for _, cpu := range of.List() {
			if r.IntN(n) == 0 {
				ids = append(ids, cpu)
			}
		}
	}
	return farm.NewCPUSet(ids...)
}

func (g *game) request() numa.Request {
	t := g.room.Topology
	req := numa.Request{VCPUs: 1 + g.r.IntN(8), Memory: farm.Bytes(1+g.r.IntN(300)) * 2 * farm.MiB, Allowed: t.Online, Service: g.reserve.CPUs}
	if g.r.IntN(3) == 0 {
		req.Pages = []farm.Bytes{2 * farm.MiB}
	}
	if g.r.IntN(3) == 0 {
		req.Allowed = t.Online.Minus(some(g.r, t.Online, 3))
	}
	return req
}

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
	if d := cmp.Diff(before, after.Give(p)); d != "" {
		t.Errorf("%s: give does not undo take:\n%s", what, d)
	}
	if _, err := after.Take(p); err == nil {
		t.Errorf("%s: taken twice", what)
	}
	g.running = append(g.running, p)
	if d := cmp.Diff(numa.NewRoom(before.Topology, g.reserve, g.running), after); d != "" {
		t.Errorf("%s: the room built anew differs:\n%s", what, d)
	}
	g.room = after
}

func (g *game) usable(req numa.Request) farm.CPUSet {
	return g.room.Free.And(req.Allowed).Minus(req.Service)
}

func (g *game) checkPlan(t *testing.T, what string, req numa.Request, p farm.Plan) {
	t.Helper()
	bad := func(format string, args ...any) { t.Errorf(what+": "+format, args...) }
	seen := numa.Observed{VCPUs: p.VCPUs, Emulator: p.Emulator}
	next, sum := 0, farm.Bytes(0)
	for _, c := range p.Cells {
		seen.Nodes = append(seen.Nodes, c.Node)
		for _, v := range c.VCPUs.List() {
			if v != next {
				bad("cells are not runs of vCPUs")
			}
			next++
		}
		sum += c.Memory
		if c.VCPUs.Empty() || c.Memory == 0 || c.Memory%(2*farm.MiB) != 0 || c.PageSize != pageOf(req) {
			bad("cell %+v", c)
		}
	}
	if problems := numa.Check(p, seen, g.running); len(problems) > 0 {
		bad("%v", problems)
	}
	if next != req.VCPUs || len(p.VCPUs) != req.VCPUs || p.CPUs().Len() != req.VCPUs || sum != req.Memory {
		bad("wanted %d vCPUs and %v", req.VCPUs, req.Memory)
	}
	if out := p.CPUs().Minus(g.usable(req)); !out.Empty() {
		bad("CPUs %v are not free and allowed", out)
	}
	if p.Guest.Sockets*p.Guest.Cores*p.Guest.Threads != req.VCPUs {
		bad("guest %+v", p.Guest)
	}
	g.checkThreads(bad, p)
	if len(p.Cells) > 1 && g.fits(req, len(p.Cells)-1) {
		bad("fewer nodes would do")
	}
}

// checkThreads holds the guest's SMT to be true: its threads are the threads of one core, all of them.
func (g *game) checkThreads(bad func(string, ...any), p farm.Plan) {
	n := p.Guest.Threads
	if n == 1 {
		return
	}
	for i := 0; i < len(p.VCPUs); i += n {
		var ids []int
		for _, v := range p.VCPUs[i : i+n] {
			ids = append(ids, v.List()...)
		}
		if !slices.ContainsFunc(g.room.Topology.Cores, func(c farm.Core) bool { return c.Threads.Equal(farm.NewCPUSet(ids...)) }) {
			bad("guest core of CPUs %v is no core of the host", ids)
		}
	}
}

// fits searches all sets of up to most nodes. It leaves hosts alone where nodes share a neighbour's memory: what it says there is
// "no".
func (g *game) fits(req numa.Request, most int) bool {
	t, usable := g.room.Topology, g.usable(req)
	for set := 1; set < 1<<len(t.Nodes); set++ {
		threads, units, nodes := 0, 0, 0
		for i, n := range t.Nodes {
			if set>>i&1 == 0 {
				continue
			}
			nodes++
			have := int(g.room.Nodes[n.ID].Memory / (2 * farm.MiB))
			if pageOf(req) != 0 {
				have = g.room.Nodes[n.ID].Pages[pageOf(req)]
			}
			free := usable.And(n.CPUs).Len()
			if have == 0 || free == 0 {
				threads = -1000
			}
			threads, units = threads+free, units+have
		}
		if nodes <= min(most, req.VCPUs, int(req.Memory/(2*farm.MiB))) && threads >= req.VCPUs && units >= int(req.Memory/(2*farm.MiB)) {
			return true
		}
	}
	return false
}

func (g *game) checkRefusal(t *testing.T, what string, req numa.Request, err error) {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Hint == "" || e.Message == "" {
		t.Fatalf("%s: %v is not for users", what, err)
	}
	empty := &game{room: numa.NewRoom(g.room.Topology, g.reserve, nil)}
	switch nodes := len(g.room.Topology.Nodes); e.Code {
	case farm.CodeNoRoom:
		if e.Kind != farm.NoCapacity || g.fits(req, nodes) {
			t.Errorf("%s: refused although it fits: %v", what, err)
		}
	case farm.CodeTooBig:
		if e.Kind != farm.Invalid || empty.fits(req, nodes) {
			t.Errorf("%s: called too big although it fits an empty host: %v", what, err)
		}
	default:
		t.Errorf("%s: %s: %v", what, e.Code, err)
	}
}

func pageOf(r numa.Request) farm.Bytes {
	if len(r.Pages) == 0 {
		return 0
	}
	return r.Pages[0]
}
