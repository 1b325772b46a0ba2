package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// town is a fleet of one cell "c" whose hosts h0, h1, ... are alike: 8 cores on two nodes of 16 GiB each.
func town(hosts int, c farm.Cell, with ...func(i int, h *Host)) *Fleet {
	f := NewFleet()
	c.Name = "c"
	f.SetCell(c)
	for i := range hosts {
		name := fmt.Sprint("h", i)
		h := Host{ID: name, Name: name, Cell: "c", Labels: map[string]string{"host": name}, Scratch: 100 * farm.GiB,
			Topology: topology.Grid{Sockets: 2, CoresPerNode: 4, NodeMemory: 16 * farm.GiB}.Topology()}
		for _, do := range with {
			do(i, &h)
		}
		f.Set(h)
	}
	return f
}

// ask is a request for a VM of project p in cell c.
func ask(vm string, cpus int, with ...func(*Request)) Request {
	r := Request{VM: vm, Project: "p", Cells: []string{"c"},
		Shape: farm.Shape{CPUs: cpus, Memory: farm.Bytes(cpus) * farm.GiB, Network: farm.NetworkNone}}
	for _, do := range with {
		do(&r)
	}
	return r
}

func inGroup(name string, a farm.Affinity) func(*Request) {
	return func(r *Request) { r.Group, r.Affinity = name, a }
}

func of(image string) func(*Request) { return func(r *Request) { r.Image = image } }

func prefers(image string) func(*Request) { return func(r *Request) { r.Prefer = image } }

func ofProject(p string) func(*Request) { return func(r *Request) { r.Project = p } }

func TestPolicies(t *testing.T) {
	image := func(i int, h *Host) {
		if i == 2 {
			h.Images = []string{"debian"}
		}
	}
	for name, c := range map[string]struct {
		fleet *Fleet
		ask   []Request
		want  string // hosts, "-" where none takes it
	}{
		"pack": {town(3, farm.Cell{}), []Request{ask("a", 2), ask("b", 2), ask("c", 4)},
			"h0 h0 h0"},
		"pack leaves whole nodes": {town(2, farm.Cell{}),
			[]Request{ask("a", 2), ask("b", 8), ask("c", 2), ask("d", 4)}, "h0 h1 h0 h0"},
		"spread": {town(3, farm.Cell{Packing: farm.Spread}),
			[]Request{ask("a", 2), ask("b", 2), ask("c", 2), ask("d", 1)}, "h0 h1 h2 h0"},
		"by project": {town(3, farm.Cell{Packing: farm.Group}),
			[]Request{ask("a", 6), ask("b", 4, ofProject("q")), ask("c", 1, ofProject("q")), ask("d", 2), ask("e", 4)},
			"h0 h1 h1 h0 h2"},
		"keeps a whole host": {town(2, farm.Cell{KeepWhole: 1, Packing: farm.Spread}),
			[]Request{ask("a", 2), ask("b", 2), ask("c", 8), ask("d", 2)}, "h0 h0 h1 h0"},
		"keeps none that was never": {town(1, farm.Cell{KeepWhole: 2}), []Request{ask("a", 2)}, "h0"},
		"at most so many on a host": {town(2, farm.Cell{PerHost: 1}),
			[]Request{ask("a", 1), ask("b", 1), ask("c", 1)}, "h0 h1 -"},
		"the cell's limits": {town(2, farm.Cell{Limits: farm.Quota{CPUs: 6}}),
			[]Request{ask("a", 4), ask("b", 4), ask("c", 2)}, "h0 - h0"},
		"together": {town(2, farm.Cell{Packing: farm.Spread}),
			[]Request{ask("a", 4, inGroup("g", farm.Together)), ask("b", 4, inGroup("g", farm.Together)),
				ask("c", 1, inGroup("g", farm.Together))}, "h0 h0 -"},
		"together where possible": {town(2, farm.Cell{Packing: farm.Spread}),
			[]Request{ask("a", 4, inGroup("g", farm.SoftTogether)), ask("b", 4, inGroup("g", farm.SoftTogether)),
				ask("c", 1, inGroup("g", farm.SoftTogether))}, "h0 h0 h1"},
		"apart": {town(2, farm.Cell{}),
			[]Request{ask("a", 1, inGroup("g", farm.Apart)), ask("b", 1, inGroup("g", farm.Apart)),
				ask("c", 1, inGroup("g", farm.Apart)), ask("d", 1)}, "h0 h1 - h0"},
		"apart where possible": {town(2, farm.Cell{}),
			[]Request{ask("a", 1, inGroup("g", farm.SoftApart)), ask("b", 1, inGroup("g", farm.SoftApart)),
				ask("c", 1, inGroup("g", farm.SoftApart)), ask("d", 1, inGroup("g", farm.SoftApart))}, "h0 h1 h0 h1"},
		"an image that is there": {town(3, farm.Cell{}, image),
			[]Request{ask("a", 1, of("debian")), ask("b", 8, of("debian")), ask("c", 1, of("other"))}, "h2 - -"},
		"an image that one has already": {town(3, farm.Cell{}, image), // first of equal ones, not where it costs room
			[]Request{ask("a", 2, prefers("debian")), ask("b", 2, prefers("debian")), ask("c", 2, prefers("other")),
				ask("d", 8), ask("e", 4, prefers("debian"))}, "h2 h2 h2 h0 h1"},
		"an image that one has already, spread": {town(3, farm.Cell{Packing: farm.Spread}, image),
			[]Request{ask("a", 2, prefers("debian")), ask("b", 2, prefers("debian")), ask("c", 2, prefers("debian")),
				ask("d", 2, prefers("debian"))}, "h2 h0 h1 h2"},
		"an image that one has already, refused": {town(3, farm.Cell{}, image), []Request{
			ask("a", 2, prefers("debian"), func(r *Request) { r.Avoid = []string{"h2"} })}, "h0"},
		"any image": {town(3, farm.Cell{}, image), []Request{ask("a", 1), ask("b", 8)}, "h0 h1"},
		"the image or the network": {town(2, farm.Cell{},
			func(i int, h *Host) { h.Networks, h.Images = []string{"n"}[i:], []string{"debian"}[:i] }),
			[]Request{ask("a", 1, of("debian"), func(r *Request) { r.Network = "n" })}, "-"},
		"hosts that refused it": {town(2, farm.Cell{}),
			[]Request{ask("a", 1, func(r *Request) { r.Avoid = []string{"h0"} }),
				ask("b", 1, func(r *Request) { r.Avoid = []string{"h0", "h1"} })}, "h1 -"},
		"a host that refuses": {town(2, farm.Cell{},
			func(i int, h *Host) { h.Refuses = []string{"closed", ""}[i] }),
			[]Request{ask("a", 1), ask("b", 8)}, "h1 -"},
		"a network": {town(2, farm.Cell{},
			func(i int, h *Host) { h.Networks = []string{fmt.Sprint("n", i)} }),
			[]Request{ask("a", 1, func(r *Request) { r.Network = "n1" }),
				ask("b", 1, func(r *Request) { r.Network = "n2" })}, "h1 -"},
		"scratch": {town(2, farm.Cell{}),
			[]Request{ask("a", 1, scratch(60)), ask("b", 1, scratch(60)), ask("c", 1, scratch(60)),
				ask("d", 1, scratch(40))}, "h0 h1 - h0"},
		"memory overcommitted": {town(1, farm.Cell{Overcommit: 2}),
			[]Request{ask("a", 1, memory(24)), ask("b", 1, memory(24)), ask("c", 1, memory(24))}, "h0 h0 -"},
		"no cell that it knows": {town(1, farm.Cell{}),
			[]Request{ask("a", 1, func(r *Request) { r.Cells = []string{"d"} }),
				ask("b", 1, func(r *Request) { r.Cells = []string{"d", "c"} })}, "- h0"},
		"a closed cell":         {town(1, farm.Cell{Closed: true}), []Request{ask("a", 1)}, "-"},
		"a batch system's cell": {town(1, farm.Cell{Broker: "slurm"}), []Request{ask("a", 1)}, "-"},
		"labels": {town(3, farm.Cell{}),
			[]Request{ask("a", 1, needs("host=h1")), ask("b", 1, needs("host!=h0", "host!=h1")),
				ask("c", 1, needs("gpu")), ask("d", 1, needs("!gpu"))}, "h1 h2 - h1"},
		"a shape that no host can hold": {town(1, farm.Cell{}), []Request{ask("a", 9), ask("b", 8)}, "- h0"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range c.ask {
				p, err := c.fleet.Claim(r)
				if err != nil {
					p.Host = "-"
				}
				got = append(got, p.Host)
			}
			if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
				t.Error(d)
			}
		})
	}
}

func scratch(gib int) func(*Request) {
	return func(r *Request) { r.Shape.Scratch = farm.Bytes(gib) * farm.GiB }
}

func memory(gib int) func(*Request) {
	return func(r *Request) { r.Shape.Memory = farm.Bytes(gib) * farm.GiB }
}

func needs(selectors ...string) func(*Request) {
	return func(r *Request) { r.Needs = selectors }
}

// Pools of huge pages of 29 and 31 pages hold two VMs of 15 each that a plan over even pools would not have put there.
func TestUnevenPools(t *testing.T) {
	f := town(1, farm.Cell{}, func(_ int, h *Host) {
		h.Topology = topologytest.WithPages(topology.Grid{Sockets: 2, CoresPerNode: 4,
			NodeMemory: 40 * farm.GiB}.Topology(), farm.GiB, 31)
		h.Topology.Nodes[0].Pages[0].Total = 29
	})
	for i, want := range []string{"h0", "h0", "h0", "-"} { // 15, 15, 15 of 29 + 31: one crosses no node
		p, err := f.Claim(ask(fmt.Sprint(i), 2, memory(15),
			func(r *Request) { r.Shape.Pages, r.Shape.Cells = []farm.Bytes{farm.GiB}, 1 }))
		if err != nil {
			p.Host = "-"
		}
		if p.Host != want {
			t.Errorf("VM %d: %s, %v", i, p.Host, err)
		}
	}
}

func TestRefusalsSayWhatMatters(t *testing.T) {
	f := town(2, farm.Cell{}, func(i int, h *Host) { h.Refuses = []string{"closed", ""}[i] })
	_, err := f.Claim(ask("a", 9))
	var e *farm.Error
	if !errors.As(err, &e) || e.Kind != farm.NoCapacity || e.Code != CodeNoPlace ||
		!strings.Contains(e.Message, "too few free CPUs") || !strings.Contains(e.Message, "closed") {
		t.Errorf("%#v", err)
	}
	_, err = f.Claim(ask("a", 2, of("debian")))
	if want := "no host of cell c has image debian: `grange image import` on a host brings it"; !errors.As(err, &e) ||
		!strings.HasSuffix(e.Message, want) {
		t.Errorf("%#v", err)
	}
	f.SetCell(farm.Cell{Name: "d"})
	f.Set(Host{ID: "i", Name: "i", Cell: "d", Refuses: "closed"})
	_, err = f.Claim(ask("a", 2, func(r *Request) { r.Network, r.Cells = "outer", []string{"d", "c"} }))
	if !errors.As(err, &e) || !strings.HasSuffix(e.Message, "no host of cells d, c carries network outer") {
		t.Errorf("%#v", err)
	}
	if _, err := NewFleet().Claim(ask("a", 2, of("debian"))); err == nil ||
		!strings.Contains(err.Error(), "a cell is closed") {
		t.Errorf("%v", err)
	}
	if _, err := town(0, farm.Cell{}).Claim(ask("a", 2, of("debian"))); err == nil ||
		!strings.HasSuffix(err.Error(), "no host") {
		t.Errorf("%v", err)
	}
	if _, err := f.Claim(ask("a", 2, memory(0))); !errors.As(err, &e) || e.Code != farm.CodeBadShape {
		t.Errorf("%#v", err)
	}
}

func TestResize(t *testing.T) {
	f := town(1, farm.Cell{})
	for _, r := range []Request{ask("a", 4), ask("b", 2)} {
		if _, err := f.Claim(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ cpus, want int }{{6, 6}, {7, 6}, {1, 1}, {6, 6}} {
		p, err := f.Resize("a", ask("a", c.cpus).Shape)
		if (err == nil) != (c.cpus == c.want) {
			t.Errorf("to %d: %v", c.cpus, err)
		}
		if err == nil && len(p.Plan.VCPUs) != c.want {
			t.Errorf("to %d: %+v", c.cpus, p)
		}
		if now, _ := f.Place("a"); now.Plan.Held().Len() != c.want {
			t.Errorf("to %d: it holds %v", c.cpus, now.Plan.Held())
		}
	}
	if _, err := f.Resize("c", ask("c", 1).Shape); err == nil {
		t.Error("resized a VM that is not there")
	}
}

// Why names constraint and cheapest change of each; each change is tried, so that making it admits the request.
func TestWhy(t *testing.T) {
	fullHouse := func(c farm.Cell, with ...func(int, *Host)) *Fleet {
		f := town(2, c, with...)
		for i, cpus := range []int{6, 5} {
			if _, err := f.Claim(ask(fmt.Sprint("old", i), cpus)); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	pages := func(_ int, h *Host) { h.Topology = topologytest.WithPages(h.Topology, 2*farm.MiB, 1024) }
	for name, c := range map[string]struct {
		fleet *Fleet
		ask   Request
		sums  string
		first string // change; others may follow
	}{
		"CPUs":    {fullHouse(farm.Cell{}), ask("a", 5), "cpus 2", "2 fewer CPUs"},
		"too big": {fullHouse(farm.Cell{}), ask("a", 9), "too big 2", "6 fewer CPUs"},
		"memory":  {fullHouse(farm.Cell{}), ask("a", 2, memory(30)), "memory 2", "27G of memory instead of 30G"},
		"pages": {town(1, farm.Cell{}, pages),
			ask("a", 2, memory(5), func(r *Request) { r.Shape.Pages = []farm.Bytes{2 * farm.MiB} }), "too big 1",
			"ordinary pages instead of pages 2M"},
		"page size": {town(1, farm.Cell{}, pages),
			ask("a", 1, memory(2), func(r *Request) { r.Shape.Pages = []farm.Bytes{farm.GiB} }), "too big 1",
			"pages 2M instead of pages 1G"},
		"nowhere": {town(1, farm.Cell{}, func(_ int, h *Host) { h.Refuses = "it is silent" }),
			ask("a", 1, of("debian")), "host refuses 1", ""},
		"one label": {town(1, farm.Cell{}), ask("a", 1, needs("gpu", "host=h0")), "labels 1",
			"without the label selector gpu"},
		"two labels": {town(1, farm.Cell{}), ask("a", 1, needs("gpu", "host=h7")), "labels 1",
			"without the label selectors gpu, host=h7"},
		"network": {town(1, farm.Cell{}, func(_ int, h *Host) { h.Networks = []string{"inner"} }),
			ask("a", 1, func(r *Request) { r.Network = "outer" }), "network 1", "network inner instead of outer"},
		"image": {town(2, farm.Cell{}), ask("a", 1, of("debian")), "image 2",
			"image debian on host h0: `grange image import` there"},
		"image, full": {fullHouse(farm.Cell{}, func(i int, h *Host) { h.Images = []string{"debian"}[i:] }),
			ask("a", 3, of("debian")), "cpus 1, image 1", "1 fewer CPUs"},
		"closed host": {town(1, farm.Cell{}, func(_ int, h *Host) {
			h.Refuses, h.Closed = "it is closed: repair",
				true
		}), ask("a", 1), "host refuses 1", "open host h0 (it is closed: repair)"},
		"silent host": {town(1, farm.Cell{}, func(_ int, h *Host) { h.Refuses = "it is silent" }), ask("a", 1),
			"host refuses 1", ""},
		"closed cell": {town(2, farm.Cell{Closed: true}), ask("a", 1), "cell closed 2", "open cell c"},
		"batch":       {town(2, farm.Cell{Broker: "slurm"}), ask("a", 1), "broker 2", ""},
		"limits":      {town(1, farm.Cell{Limits: farm.Quota{CPUs: 1}}), ask("a", 2), "cell limit 1", "1 fewer CPUs"},
		"other cell": {town(1, farm.Cell{}), ask("a", 1, func(r *Request) { r.Cells = []string{"d"} }), "cell 1",
			"let project p use cell c"},
		"host is full": {fullHouse(farm.Cell{PerHost: 1}), ask("a", 1), "full 2",
			"end a VM of 5 CPUs and 5G on host h1"},
		"scratch": {town(1, farm.Cell{}), ask("a", 1, scratch(200)), "too big 1",
			"100G of scratch instead of 200G"},
		"thread policy": {fullHouse(farm.Cell{}),
			ask("a", 2, func(r *Request) { r.Shape.Threads = farm.RequireSiblings }), "too big 2",
			"thread policy prefer instead of require"},
	} {
		t.Run(name, func(t *testing.T) {
			before := state(c.fleet)
			e, err := c.fleet.Why(c.ask)
			if err != nil {
				t.Fatal(err)
			}
			var sums []string
			for _, s := range e.Sums {
				sums = append(sums, fmt.Sprint(s.Constraint, " ", s.Hosts))
			}
			first := ""
			if len(e.Changes) > 0 {
				first = e.Changes[0].Text
			}
			if got := strings.Join(sums, ", "); got != c.sums || first != c.first || e.Fits != 0 {
				t.Errorf("%q, %q of %+v", got, first, e)
			}
			if !slices.IsSortedFunc(e.Changes, func(a, b Change) int { return int(a.Kind) - int(b.Kind) }) {
				t.Errorf("not the cheapest first: %+v", e.Changes)
			}
			if d := cmp.Diff(before, state(c.fleet)); d != "" {
				t.Errorf("asking changed the fleet:\n%s", d)
			}
		})
	}
}

func TestWhyOfWhatFits(t *testing.T) {
	f := town(2, farm.Cell{})
	if _, err := f.Claim(ask("old", 8)); err != nil {
		t.Fatal(err)
	}
	e, err := f.Why(ask("a", 2))
	if err != nil || e.Fits != 1 || e.Hosts != 2 || len(e.Changes) != 0 || !e.Each[1].Fits || e.Each[0].Message == "" {
		t.Errorf("%+v, %v", e, err)
	}
}

// What Why says of very many hosts is what it says of few, in fewer words.
func TestWhyIsBriefOfMany(t *testing.T) {
	for seed := range 300 {
		g := newGame(rand.New(rand.NewPCG(uint64(seed), 5)))
		for range 30 {
			g.claim(t, "to fill it")
		}
		r := g.request()
		d, err := requestOf(r.Shape).Demand()
		if err != nil {
			continue
		}
		for _, h := range g.fleet.hosts {
			long, short := g.fleet.brief(r, h, &d, true), g.fleet.brief(r, h, &d, false)
			if long.Fits != short.Fits || long.Constraint != short.Constraint && long.Constraint != TooBig {
				t.Errorf("seed %d: %+v in many words, %+v in few, for %+v", seed, long, short, r)
			}
		}
	}
}

// TestWith: who knows more of some hosts answers for them, and the sums are of what is said then.
func TestWith(t *testing.T) {
	e := Explanation{Each: []Answer{{Host: "a", Name: "a", Constraint: OfABatch, Message: "by slurm"},
		{Host: "b", Name: "b", Constraint: NoCPUs, Message: "full"}}, Changes: []Change{{Text: "ask for less"}}}
	got := e.With([]Answer{{Host: "a", Name: "a", Constraint: NoCPUs, Message: "jobs"},
		{Host: "c", Name: "c", Fits: true}})
	if len(got.Each) != 2 || got.Hosts != 2 || got.Fits != 0 || len(got.Sums) != 1 ||
		got.Sums[0] != (Sum{NoCPUs, 2, "a: jobs"}) || len(got.Changes) != 1 {
		t.Errorf("%+v", got)
	}
	if got = got.With([]Answer{{Host: "b", Name: "b", Fits: true}}); got.Fits != 1 || len(got.Sums) != 1 ||
		got.Sums[0].Hosts != 1 || len(got.Changes) != 0 {
		t.Errorf("%+v", got)
	}
	if e.Each[0].Message != "by slurm" {
		t.Error("it was changed itself")
	}
}
