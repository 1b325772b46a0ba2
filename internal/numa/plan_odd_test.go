package numa_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func TestPlanRefusesNonsense(t *testing.T) {
	host := topologytest.WithPages(topologytest.CERN2650v2(), farm.GiB, 10)
	room := numa.NewRoom(host, numa.Reserve{Memory: 2 * farm.GiB}, nil)
	g := func(s, c, th int) farm.GuestTopology { return farm.GuestTopology{Sockets: s, Cores: c, Threads: th} }
	for name, c := range map[string]struct {
		req  numa.Request
		code farm.Code
	}{
		"no vCPUs":       {numa.Request{Memory: farm.GiB}, farm.CodeBadShape},
		"negative vCPUs": {numa.Request{VCPUs: -1, Memory: farm.GiB}, farm.CodeBadShape},
		"absurd vCPUs":   {numa.Request{VCPUs: 1 << 40, Memory: farm.GiB}, farm.CodeBadShape},
		"no memory":      {numa.Request{VCPUs: 1}, farm.CodeBadShape},
		"absurd memory":  {numa.Request{VCPUs: 1, Memory: 1 << 63}, farm.CodeBadShape},
		"crooked memory": {numa.Request{VCPUs: 1, Memory: farm.GiB + 1}, farm.CodeBadShape},
		"half a page": {numa.Request{VCPUs: 1, Memory: farm.GiB / 2, Pages: []farm.Bytes{farm.GiB}},
			farm.CodeBadShape},
		"page and a half": {numa.Request{VCPUs: 1, Memory: farm.GiB * 3 / 2, Pages: []farm.Bytes{farm.GiB}},
			farm.CodeBadShape},
		"crooked page": {numa.Request{VCPUs: 1, Memory: 3 * farm.GiB, Pages: []farm.Bytes{3 * farm.MiB}},
			farm.CodeBadShape},
		"guest of other size": {numa.Request{VCPUs: 4, Memory: farm.GiB, Guest: g(1, 3, 1)}, farm.CodeBadShape},
		"negative guest":      {numa.Request{VCPUs: 4, Memory: farm.GiB, Guest: g(-2, -2, 1)}, farm.CodeBadShape},
		"overflowing guest": {numa.Request{VCPUs: 4, Memory: farm.GiB, Guest: g(1<<32, 1<<32, 1)},
			farm.CodeBadShape},
		"half a guest":          {numa.Request{VCPUs: 4, Memory: farm.GiB, Guest: g(0, 4, 1)}, farm.CodeBadShape},
		"more CPUs than host":   {numa.Request{VCPUs: 33, Memory: 64 * farm.MiB}, farm.CodeTooBig},
		"more memory than host": {numa.Request{VCPUs: 2, Memory: 65 * farm.GiB}, farm.CodeTooBig},
		"the host's own memory": {numa.Request{VCPUs: 2, Memory: 43 * farm.GiB}, farm.CodeTooBig},
		"pages the host has not": {numa.Request{VCPUs: 2, Memory: farm.GiB, Pages: []farm.Bytes{2 * farm.MiB}},
			farm.CodeTooBig},
		"more pages than host": {numa.Request{VCPUs: 2, Memory: 21 * farm.GiB, Pages: []farm.Bytes{farm.GiB}},
			farm.CodeTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			c.req.Allowed = host.Online
			_, err := numa.Plan(room, c.req)
			wantError(t, err, farm.Invalid, c.code)
		})
	}
	_, err := numa.Plan(room, numa.Request{VCPUs: 1, Memory: farm.GiB})
	wantError(t, err, farm.Invalid, farm.CodeTooBig) // no CPU allowed is not all CPUs allowed
	_, err = numa.Plan(numa.Room{}, numa.Request{VCPUs: 1, Memory: farm.GiB, Allowed: host.Online})
	wantError(t, err, farm.Invalid, farm.CodeTooBig)
}

func wantError(t *testing.T, err error, kind farm.Kind, code farm.Code) {
	t.Helper()
	var e *farm.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code || e.Hint == "" {
		t.Errorf("got %#v, want %s %s", err, kind, code)
	}
}

func TestRefusalNamesWhatIsShort(t *testing.T) {
	host := topologytest.WithPages(topologytest.CERN2650v2(), farm.GiB, 10)
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	room.Free = room.Free.Minus(cpus(t, "0-6,16-23"))
	room.Nodes[1].Pages[farm.GiB] = 3
	_, err := numa.Plan(room, numa.Request{VCPUs: 8, Memory: 16 * farm.GiB, Pages: []farm.Bytes{farm.GiB},
		Allowed: host.Online})
	wantError(t, err, farm.NoCapacity, farm.CodeNoRoom)
	for _, want := range []string{"node 0 lacks 7 CPUs and 6 pages of 1G", "node 1 lacks 13 pages of 1G",
		"all nodes together lack 3 pages of 1G"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func plan(t *testing.T, room numa.Room, req numa.Request) string {
	t.Helper()
	if req.Allowed.Empty() {
		req.Allowed = room.Topology.Online
	}
	p, err := numa.Plan(room, req)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	writePlan(&b, p)
	return b.String()
}

func want(t *testing.T, got string, lines ...string) {
	t.Helper()
	if d := cmp.Diff(strings.Join(lines, "\n")+"\n", got); d != "" {
		t.Error(d)
	}
}

// A batch system may grant CPUs in any cut; the plan takes them as they are.
func TestPlanTakesLopsidedGrant(t *testing.T) {
	room := numa.NewRoom(topologytest.CERN2650v2(), numa.Reserve{}, nil)
	want(t, plan(t, room, numa.Request{VCPUs: 12, Memory: 12 * farm.GiB, Allowed: cpus(t, "0-4,16-20,8,24")}),
		"  guest 1 sockets × 6 cores × 2 threads, emulator on 0-4,8,16-20,24",
		"  cell 0: vCPUs 0-9, 10G of node 0",
		"    0 16 1 17 2 18 3 19 4 20",
		"  cell 1: vCPUs 10-11, 2G of node 1",
		"    8 24")
	// one thread of each core
	want(t, plan(t, room, numa.Request{VCPUs: 4, Memory: 4 * farm.GiB, Allowed: cpus(t, "0-3")}),
		"  guest 1 sockets × 4 cores × 1 threads, emulator on 0-3",
		"  cell 0: vCPUs 0-3, 4G of node 0",
		"    0 1 2 3")
}

func TestPlanKeepsWholeCores(t *testing.T) {
	room := numa.NewRoom(topologytest.CERN2650v2(), numa.Reserve{}, nil)
	// node 0: three whole cores and five lone siblings; node 1: eight lone siblings
	room.Free = room.Free.Minus(cpus(t, "0-3,7,8-15"))
	want(t, plan(t, room, numa.Request{VCPUs: 6, Memory: farm.GiB}),
		"  guest 1 sockets × 3 cores × 2 threads, emulator on 4-6,20-22",
		"  cell 0: vCPUs 0-5, 1G of node 0",
		"    4 20 5 21 6 22")
	want(t, plan(t, room, numa.Request{VCPUs: 1, Memory: farm.GiB}), // a lone sibling, where least is left
		"  guest 1 sockets × 1 cores × 1 threads, emulator on 24",
		"  cell 0: vCPUs 0, 1G of node 1",
		"    24")
	want(t, plan(t, room, numa.Request{VCPUs: 2, Memory: farm.GiB,
		Guest: farm.GuestTopology{Sockets: 2, Cores: 1, Threads: 1}, Service: cpus(t, "0")}),
		"  guest 2 sockets × 1 cores × 1 threads, emulator on 0", "  cell 0: vCPUs 0-1, 1G of node 0", "    4 20")
}

// Sixteen threads a cache: 24 vCPUs need two of them, 8 stay in one, and the fuller one is taken first.
func TestPlanStaysInOneCache(t *testing.T) {
	room := numa.NewRoom(topologytest.EPYC256(), numa.Reserve{}, nil)
	room.Free = room.Free.Minus(cpus(t, "0-2,128-130")) // five cores left in the first cache
	want(t, plan(t, room, numa.Request{VCPUs: 12, Memory: farm.GiB}),
		"  guest 1 sockets × 6 cores × 2 threads, emulator on 8-13,136-141",
		"  cell 0: vCPUs 0-11, 1G of node 0",
		"    8 136 9 137 10 138 11 139 12 140 13 141")
	want(t, plan(t, room, numa.Request{VCPUs: 10, Memory: farm.GiB}),
		"  guest 1 sockets × 5 cores × 2 threads, emulator on 3-7,131-135",
		"  cell 0: vCPUs 0-9, 1G of node 0",
		"    3 131 4 132 5 133 6 134 7 135")
}

// An empty node of a socket that has VMs already, rather than one of an empty socket.
func TestPlanKeepsSocketsFree(t *testing.T) {
	room := numa.NewRoom(topologytest.EPYC256(), numa.Reserve{}, nil)
	room.Free = room.Free.Minus(cpus(t, "64-79,192-207")) // node 4, on socket 1
	want(t, plan(t, room, numa.Request{VCPUs: 4, Memory: farm.GiB}),
		"  guest 1 sockets × 2 cores × 2 threads, emulator on 80-81,208-209",
		"  cell 0: vCPUs 0-3, 1G of node 5",
		"    80 208 81 209")
}

// Node 0 has CPUs and no memory, node 1 both, node 2 memory only and nearest to node 0.
func TestPlanBindsToNearestMemory(t *testing.T) {
	host := topology.Grid{Sockets: 2, CoresPerNode: 4, NodeMemory: 8 * farm.GiB}.Topology()
	host.Nodes[0].Memory = 0
	host.Nodes = append(host.Nodes, farm.Node{ID: 2, Memory: 8 * farm.GiB})
	host.Distance = [][]int{{10, 21, 17}, {21, 10, 28}, {17, 28, 10}}
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	want(t, plan(t, room, numa.Request{VCPUs: 8, Memory: 8 * farm.GiB}),
		"  guest 2 sockets × 4 cores × 1 threads, emulator on 0-7",
		"  cell 0: vCPUs 0-3, 4G of node 2",
		"    0 1 2 3",
		"  cell 1: vCPUs 4-7, 4G of node 1",
		"    4 5 6 7")
}

func TestPlanOnHybridCores(t *testing.T) {
	host := topology.Grid{Sockets: 1, CoresPerNode: 4, Threads: 2, NodeMemory: 8 * farm.GiB}.Topology()
	for i := range host.Cores[2:] { // two cores without SMT: threads 2 and 3
		host.Cores[2+i].Threads = farm.NewCPUSet(2 + i)
	}
	host.Online = cpus(t, "0-5")
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	want(t, plan(t, room, numa.Request{VCPUs: 4, Memory: farm.GiB}),
		"  guest 1 sockets × 2 cores × 2 threads, emulator on 0-1,4-5",
		"  cell 0: vCPUs 0-3, 1G of node 0",
		"    0 4 1 5")
	want(t, plan(t, room, numa.Request{VCPUs: 5, Memory: farm.GiB}), // a core without SMT rather than half of one with
		"  guest 1 sockets × 5 cores × 1 threads, emulator on 0-2,4-5",
		"  cell 0: vCPUs 0-4, 1G of node 0",
		"    0 4 1 5 2")
}

func TestNewRoom(t *testing.T) {
	host := topologytest.WithPages(topologytest.CERN2650v2(), farm.GiB, 20)
	host.Nodes[1].Memory = 44 * farm.GiB // 12 and 24 GiB of ordinary memory
	room := numa.NewRoom(host, numa.Reserve{CPUs: cpus(t, "0,16"), Memory: 3 * farm.GiB}, nil)
	if room.Nodes[0].Memory != 11*farm.GiB || room.Nodes[1].Memory != 22*farm.GiB || room.Free.Len() != 30 ||
		room.Nodes[1].Pages[farm.GiB] != 20 {
		t.Errorf("%+v", room)
	}
	over := farm.Plan{VCPUs: []farm.CPUSet{cpus(t, "0")},
		Cells: []farm.GuestCell{{VCPUs: cpus(t, "0"), Memory: 64 * farm.GiB, Node: 0}}}
	if got := numa.NewRoom(host, numa.Reserve{}, []farm.Plan{over}).Nodes[0].Memory; got != 0 {
		t.Errorf("an overcommitted node has %v left", got)
	}
	_, err := room.Take(over)
	wantError(t, err, farm.NoCapacity, farm.CodeNoRoom)
	over.VCPUs[0] = cpus(t, "99")
	_, err = room.Take(over)
	wantError(t, err, farm.Invalid, farm.CodeBadPlan)
	over.VCPUs[0], over.Cells[0].Node = cpus(t, "1"), 7
	_, err = room.Take(over)
	wantError(t, err, farm.Invalid, farm.CodeBadPlan)
}

// Three of four threads are free on each core: four vCPUs that want company go two and two, not three and one.
func TestPlanLeavesNobodyAlone(t *testing.T) {
	host := topology.Grid{Sockets: 1, CoresPerNode: 4, Threads: 4, NodeMemory: 8 * farm.GiB}.Topology()
	room := numa.NewRoom(host, numa.Reserve{}, nil)
	for _, c := range host.Cores {
		room.Free = room.Free.Minus(farm.NewCPUSet(c.Threads.List()[0]))
	}
	p, err := numa.Plan(room, numa.Request{VCPUs: 4, Memory: farm.GiB, Allowed: host.Online,
		Threads: farm.RequireSiblings})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range host.Cores {
		if n := p.CPUs().And(c.Threads).Len(); n == 1 {
			t.Errorf("one vCPU is alone on core %v: %v", c.Threads, p.CPUs())
		}
	}
}

// TestSmallNodes: a VM of one vCPU lies on one node, and a refusal names how many vCPUs reach the memory that it wants.
func TestSmallNodes(t *testing.T) {
	host := topology.Grid{Sockets: 2, CoresPerNode: 2, Threads: 2, NodeMemory: 1450 * farm.MiB}.Topology()
	ask := func(reserve farm.Bytes, vcpus int, memory farm.Bytes) error {
		_, err := numa.Plan(numa.NewRoom(host, numa.Reserve{Memory: reserve}, nil),
			numa.Request{VCPUs: vcpus, Memory: memory, Allowed: host.Online})
		return err
	}
	if err := ask(362*farm.MiB, 1, farm.GiB); err != nil {
		t.Errorf("the default shape, with an eighth of the memory kept: %v", err)
	}
	e := new(farm.Error)
	if err := ask(farm.GiB, 1, farm.GiB); !errors.As(err, &e) || e.Code != farm.CodeTooBig ||
		!strings.Contains(e.Hint, "at least 2 vCPUs") {
		t.Errorf("with 1G kept: %+v", err)
	}
	if err := ask(farm.GiB, 2, farm.GiB); err != nil {
		t.Errorf("as the hint says: %v", err)
	}
	if err := ask(farm.GiB, 1, 8*farm.GiB); !errors.As(err, &e) || strings.Contains(e.Hint, "vCPUs") {
		t.Errorf("more than the whole host has: %+v", err)
	}
}
