package numa_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// fill places VMs with so many vCPUs and GiB each, on the CPUs that it says.
func fill(t *testing.T, room numa.Room, vms ...string) (numa.Room, []numa.Running) {
	t.Helper()
	var running []numa.Running
	for i, vm := range vms {
		var n, gib int
		var on string
		if _, err := fmt.Sscan(vm, &n, &gib, &on); err != nil {
			t.Fatal(err)
		}
		req := numa.Request{VCPUs: n, Memory: farm.Bytes(gib) * farm.GiB, Allowed: cpus(t, on)}
		p, err := numa.Plan(room, req)
		if err != nil {
			t.Fatal(err)
		}
		if room, err = room.Take(p); err != nil {
			t.Fatal(err)
		}
		req.Allowed = room.Topology.Online
		running = append(running, numa.Running{Name: fmt.Sprintf("vm%d", i), Plan: p, Request: req})
	}
	return room, running
}

func TestRepack(t *testing.T) {
	empty := numa.NewRoom(topologytest.CERN2650v2(), numa.Reserve{}, nil)
	const node0, node1 = "0-7,16-23", "8-15,24-31"
	for name, c := range map[string]struct {
		vms   []string
		fixed int // how many of them
		want  numa.Request
		moves string // or what the error has to say
	}{
		"fits already": {[]string{"8 8 " + node0}, 0, numa.Request{VCPUs: 16, Memory: 8 * farm.GiB, Cells: 1}, ""},
		"a small one": {[]string{"4 4 " + node0, "2 2 " + node1}, 0,
			numa.Request{VCPUs: 16, Memory: 8 * farm.GiB, Cells: 1}, "vm1 2G"},
		"not the fixed": {[]string{"2 2 " + node1, "4 4 " + node0}, 1,
			numa.Request{VCPUs: 16, Memory: 8 * farm.GiB, Cells: 1}, "vm1 4G"},
		"two": {[]string{"8 8 " + node0, "2 2 " + node1, "4 1 " + node1}, 0,
			numa.Request{VCPUs: 16, Memory: 8 * farm.GiB, Cells: 1}, "vm1 2G, vm2 1G"},
		"threads only": {[]string{"4 4 0-3", "16 16 " + node1}, 0,
			numa.Request{VCPUs: 6, Memory: farm.GiB, Threads: farm.IsolateCores, Cells: 1}, "vm0 0"},
		"nothing helps": {[]string{"8 30 " + node0, "8 30 " + node1}, 0,
			numa.Request{VCPUs: 8, Memory: 4 * farm.GiB, Cells: 1}, "moving up to 3 VMs"},
		"all are fixed": {[]string{"4 4 " + node0, "2 2 " + node1}, 2,
			numa.Request{VCPUs: 16, Memory: 8 * farm.GiB, Cells: 1}, "moving up to 3 VMs"},
		"never":          {nil, 0, numa.Request{VCPUs: 33, Memory: farm.GiB}, "can never hold"},
		"makes no sense": {nil, 0, numa.Request{Memory: farm.GiB}, "cannot have 0 vCPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			room, running := fill(t, empty, c.vms...)
			for i := range c.fixed {
				running[i].Fixed = true
			}
			c.want.Allowed = room.Topology.Online
			moves, err := numa.Repack(room, running, c.want)
			if err != nil {
				if c.moves == "" || !strings.Contains(err.Error(), c.moves) {
					t.Errorf("%v, want %q", err, c.moves)
				}
				return
			}
			var got []string
			for _, m := range moves {
				got = append(got, fmt.Sprintf("%s %v", m.Name, m.Memory))
			}
			if d := cmp.Diff(c.moves, strings.Join(got, ", ")); d != "" {
				t.Error(d)
			}
			holdMoves(t, room, moves, c.want)
		})
	}
}

// holdMoves makes the moves and then places want.
func holdMoves(t *testing.T, room numa.Room, moves []numa.Move, want numa.Request) {
	t.Helper()
	for _, m := range moves {
		var err error
		if room, err = room.Give(m.From).Take(m.To); err != nil {
			t.Fatalf("move of %s: %v", m.Name, err)
		}
		if m.From.Guest != m.To.Guest || m.From.Memory() != m.To.Memory() || len(m.From.Cells) != len(m.To.Cells) {
			t.Errorf("the guest of %s changes: %+v, %+v", m.Name, m.From, m.To)
		}
		for i, c := range m.From.Cells {
			if to := m.To.Cells[i]; !to.VCPUs.Equal(c.VCPUs) || to.PageSize != c.PageSize || to.Memory != c.Memory {
				t.Errorf("cell %d of %s changes: %+v, %+v", i, m.Name, c, to)
			}
		}
	}
	if _, err := numa.Plan(room, want); err != nil {
		t.Errorf("no room after %d moves: %v", len(moves), err)
	}
}

// TestRepackRandom fills random hosts, ends some VMs, and asks for what does not fit.
func TestRepackRandom(t *testing.T) {
	helped, refused := 0, 0
	for seed := range 2500 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		g := newGame(r)
		var running []numa.Running
		for i := range 12 {
			req := g.request()
			if p, err := numa.Plan(g.room, req); err == nil {
				if g.room, err = g.room.Take(p); err != nil {
					t.Fatal(err)
				}
				running = append(running,
					numa.Running{Name: fmt.Sprint(i), Plan: p, Request: req, Fixed: r.IntN(5) == 0})
			}
		}
		for len(running) > 1 && r.IntN(3) > 0 {
			i := r.IntN(len(running))
			g.room = g.room.Give(running[i].Plan)
			running = append(running[:i], running[i+1:]...)
		}
		for range 5 {
			want := g.request()
			_, full := numa.Plan(g.room, want)
			moves, err := numa.Repack(g.room, running, want)
			switch {
			case err != nil:
				refused++
			case full == nil && moves != nil:
				t.Errorf("seed %d: moves although it fits: %+v", seed, moves)
			case full != nil && len(moves) == 0:
				t.Errorf("seed %d: no moves and no error", seed)
			default:
				helped += number(full != nil)
				holdMoves(t, g.room, moves, want)
			}
			if t.Failed() {
				t.Fatalf("seed %d: want %+v", seed, want)
			}
		}
	}
	t.Logf("%d helped, %d refused", helped, refused)
	if helped < 60 {
		t.Error("the generator has become one-sided")
	}
}
