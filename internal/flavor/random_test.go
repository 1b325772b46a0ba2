package flavor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grange-project/grange/e2e/novacases/judge"
	"github.com/grange-project/grange/internal/flavor"
)

// family is a kind of host that the recorded cases have: nodes of cores of threads, with 4 KiB and 2 MiB pages.
type family struct {
	name           string
	nodes, threads int
	cores          []int // by node; the last is for all further ones
	memoryMiB      int64 // by node; a quarter of it is in 4 KiB pages
	interleaved    bool  // threads are numbered core by core
}

var families = []family{
	{name: "cern32", nodes: 2, cores: []int{8}, threads: 2, memoryMiB: 65536},
	{name: "xeon4s", nodes: 4, cores: []int{16}, threads: 2, memoryMiB: 98304},
	{name: "epyc256", nodes: 8, cores: []int{16}, threads: 2, memoryMiB: 131072},
	{name: "asym", nodes: 2, cores: []int{2, 6}, threads: 2, memoryMiB: 16384},
	{name: "smt4", nodes: 2, cores: []int{4}, threads: 4, memoryMiB: 32768, interleaved: true},
	{name: "offline", nodes: 2, cores: []int{8}, threads: 2, memoryMiB: 65536},
	{name: "magny48", nodes: 8, cores: []int{6}, threads: 1, memoryMiB: 16384},
	{name: "memless", nodes: 2, cores: []int{4}, threads: 2, memoryMiB: 65536},
	{name: "gigantic", nodes: 4, cores: []int{4}, threads: 2, memoryMiB: 65536},
	{name: "small", nodes: 3, cores: []int{3}, threads: 2, memoryMiB: 4096},
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// host is one of the family, partly used.
func (f family) host(r *rand.Rand) []flavor.HostCell {
	var cells []flavor.HostCell
	all, next := 0, 0
	for n := range f.nodes {
		all += f.cores[min(n, len(f.cores)-1)]
	}
	busy := pick(r, 0, 0, 0.2, 0.5, 0.7)
	for n := range f.nodes {
		h := flavor.HostCell{ID: n, MemoryMiB: f.memoryMiB}
		for range f.cores[min(n, len(f.cores)-1)] {
			var core []int
			for t := range f.threads {
				cpu := next + t*all
				if f.interleaved {
					cpu = next*f.threads + t
				}
				if t > 0 && f.name == "offline" && n == 0 && r.IntN(4) == 0 {
					continue
				}
				core = append(core, cpu)
				if r.Float64() < busy {
					h.Pinned = append(h.Pinned, cpu)
				}
			}
			h.Siblings = append(h.Siblings, core)
			h.Dedicated = append(h.Dedicated, core...)
			next++
		}
		h.CPUs = append([]int(nil), h.Dedicated...)
		if f.name == "memless" && n == 1 {
			h.MemoryMiB = 0
		}
		f.pages(r, &h)
		cells = append(cells, h)
	}
	return cells
}

func (f family) pages(r *rand.Rand, h *flavor.HostCell) {
	huge := h.MemoryMiB / 4 * 3 / 2
	used := huge * pick[int64](r, 0, 0, 0, 30, 70, 95) / 100
	small := flavor.Pages{SizeKiB: 4, Total: (h.MemoryMiB - huge*2) * 256}
	h.Pages = []flavor.Pages{small, {SizeKiB: 2048, Total: huge, Used: used}}
	h.MemoryUsage = used * 2
	if f.name == "gigantic" {
		h.Pages = []flavor.Pages{small, {SizeKiB: 2048, Total: 8192, Used: used / 4},
			{SizeKiB: 1 << 20, Total: 16, Used: int64(r.IntN(17)), Reserved: int64(r.IntN(3))}}
		h.MemoryUsage = used/4*2 + h.Pages[2].Used<<10
		if r.IntN(4) == 0 {
			h.Pages = h.Pages[1:] // a host with huge pages only
		}
	}
	if f.name == "small" {
		h.Pages = pick(r, nil, h.Pages,
			[]flavor.Pages{{SizeKiB: 16, Total: 4096 * 64 / 4, Reserved: 512}, {SizeKiB: 2048, Total: 1024}})
	}
}

var pageWishes = []flavor.PageSize{{}, {}, {Word: "small"}, {Word: "large"}, {Word: "any"}, {KiB: 2048}, {KiB: 2048},
	{KiB: 4}, {KiB: 1 << 20}, {KiB: 16}}

// guest wants cells of one policy, as flavors do, of equal or different sizes.
func (f family) guest(r *rand.Rand) []flavor.GuestCell {
	want := flavor.GuestCell{CPUPolicy: "dedicated", Threads: pick(r, "", "prefer", "isolate", "require"),
		PageSize: pick(r, pageWishes...)}
	count, next := 1, 0
	if r.IntN(2) == 0 {
		count += r.IntN(min(f.nodes, 4))
	}
	most := f.cores[0]*f.threads + 1
	size, per := min(pick(r, 1, 2, 3, 4, 6, 8, 12, 16, 24), most), pick[int64](r, 128, 512, 1000, 1024, 2048, 3072)
	var cells []flavor.GuestCell
	for range count {
		g := want
		if r.IntN(2) == 0 {
			size, per = min(pick(r, 1, 2, 3, 4, 5, 6, 8), most), pick[int64](r, 128, 512, 1024, 3072)
		}
		for range size {
			g.Dedicated = append(g.Dedicated, next)
			next++
		}
		g.MemoryMiB = per * int64(size)
		cells = append(cells, g)
	}
	return cells
}

// share makes part of the host's CPUs a pool for sharing, and the guest a sharing or a mixed one.
func share(r *rand.Rand, c *flavor.Case) {
	for i := range c.Host {
		h := &c.Host[i]
		cut := len(h.Dedicated) / 2
		h.CPUs, h.Dedicated = h.Dedicated[:cut], h.Dedicated[cut:]
		h.CPUUsage = r.IntN(2*cut + 1)
	}
	policy := pick(r, "", "shared", "mixed")
	for i := range c.Guest {
		g := &c.Guest[i]
		g.CPUPolicy = policy
		if policy == "mixed" {
			cut := r.IntN(len(g.Dedicated) + 1)
			g.Shared, g.Dedicated = g.Dedicated[:cut], g.Dedicated[cut:]
			continue
		}
		g.Threads = pick(r, "", "isolate") // means nothing without CPUs of its own
		g.Shared, g.Dedicated = g.Dedicated, nil
	}
	if r.IntN(2) == 0 {
		c.Limits = &flavor.Limits{CPU: pick(r, 0.5, 1, 1.5, 2, 16), Memory: pick(r, 0.9, 1, 1.5)}
	}
}

func (f family) draw(r *rand.Rand) flavor.Case {
	c := flavor.Case{ID: f.name, Host: f.host(r), Guest: f.guest(r)}
	if r.IntN(6) == 0 {
		share(r, &c)
	}
	switch r.IntN(12) {
	case 0:
		c.Emulator = "isolate"
	case 1:
		c.Reserved = 1
	case 2:
		if len(c.Guest) == 1 {
			c.Reserved = 2 + r.IntN(2)
		}
	}
	return c
}

// TestRandomCases holds verdicts against an exhaustive search, and every answer against the rules.
func TestRandomCases(t *testing.T) {
	rounds := 700
	if testing.Short() {
		rounds = 100
	}
	for i, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			fits := 0
			for n := range rounds {
				c := f.draw(r)
				c.ID = fmt.Sprintf("%s-%d", f.name, n)
				a := flavor.Fit(c)
				want := judge.Feasible(c)
				if want {
					fits++
				}
				err := judge.Valid(c, a)
				if a.Fits == want && err == nil {
					continue
				}
				text, _ := json.Marshal(map[string]any{"host": c.Host, "guest": c.Guest, "emulator": c.Emulator,
					"reserved": c.Reserved, "limits": c.Limits})
				t.Fatalf("%s: fits %v, want %v; %v; answer %+v\n%s", c.ID, a.Fits, want, err, a, text)
			}
			if fits < rounds/8 || fits > rounds*7/8 {
				t.Errorf("%d of %d cases fit: they are too easy or too hard", fits, rounds)
			}
		})
	}
}
