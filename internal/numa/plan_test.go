package numa_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var hosts = map[string]func() farm.Topology{
	"cern-2650v2": topologytest.CERN2650v2,
	"cern-2630v3": topologytest.CERN2630v3,
	"epyc-256":    topologytest.EPYC256,
}

// TestGolden reads each testdata/*.txt: a head of lines, then "---", then the plans. A new file is a new case: write
// the head, run with -update, and read what came. The head has
//
//	host NAME                         one of hosts
//	reserve CPUS MEMORY               kept for the host
//	pages SIZE COUNT [NODE]           huge pages on every node, or one
//	shared NODE CPUS VCPUS MEMORY     a pool for VMs that share
//	held CPUS                         taken by others
//	vm COUNT VCPUS MEMORY [PAGES] [WORD=VALUE ...]
//	end N                             the N-th VM that was placed ends, from 1
//
// PAGES are sizes with commas, best first, 0 for ordinary ones. The words of vm are cpu, threads, emulator, cells,
// contiguous and cell=VCPUS:MEMORY[:FLOATING] once for each cell, with VCPUS and MEMORY before them 0.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, want, _ := strings.Cut(string(text), "---\n")
			got := play(t, head)
			if *update {
				if err := os.WriteFile(file, []byte(head+"---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func play(t *testing.T, head string) string {
	t.Helper()
	g := golden{T: t, reserve: numa.Reserve{Shared: map[int]numa.SharedRoom{}}}
	for line := range strings.Lines(head) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(line, "#") {
			g.line(f)
		}
	}
	return g.out.String()
}

// golden is a golden file being played.
type golden struct {
	*testing.T
	host    farm.Topology
	reserve numa.Reserve
	room    *numa.Room
	running []farm.Plan
	out     strings.Builder
}

func (g *golden) line(f []string) {
	switch f[0] {
	case "host":
		g.host = hosts[f[1]]()
	case "reserve":
		g.reserve.CPUs, g.reserve.Memory = cpus(g.T, f[1]), size(g.T, f[2])
	case "pages":
		if len(f) == 3 {
			g.host = topologytest.WithPages(g.host, size(g.T, f[1]), count(g.T, f[2]))
			return
		}
		n := &g.host.Nodes[count(g.T, f[3])]
		n.Pages = append(n.Pages, farm.HugePages{Size: size(g.T, f[1]), Total: count(g.T, f[2]),
			Free: count(g.T, f[2])})
	case "shared":
		g.reserve.Shared[count(g.T, f[1])] = numa.SharedRoom{CPUs: cpus(g.T, f[2]), VCPUs: count(g.T, f[3]),
			Memory: size(g.T, f[4])}
	case "held":
		g.now().Free = g.now().Free.Minus(cpus(g.T, f[1]))
	case "vm":
		g.vm(count(g.T, f[1]), g.request(f[2:]))
	case "end":
		n := count(g.T, f[1])
		*g.now() = g.room.Give(g.running[n-1])
		fmt.Fprintf(&g.out, "VM %d ends\n", n)
	default:
		g.Fatalf("unknown line %q", f)
	}
}

func (g *golden) now() *numa.Room {
	if g.room == nil {
		r := numa.NewRoom(g.host, g.reserve, nil)
		g.room = &r
	}
	return g.room
}

func (g *golden) request(f []string) numa.Request {
	req := numa.Request{VCPUs: count(g.T, f[0]), Memory: size(g.T, f[1]), Allowed: g.host.Online,
		Service: g.reserve.CPUs}
	for _, word := range f[2:] {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok:
			for s := range strings.SplitSeq(word, ",") {
				req.Pages = append(req.Pages, size(g.T, s))
			}
		case name == "cpu":
			req.CPU = farm.CPUPolicy(value)
		case name == "threads":
			req.Threads = farm.ThreadPolicy(value)
		case name == "emulator":
			req.Emulator = farm.EmulatorPolicy(value)
		case name == "cells":
			req.Cells = count(g.T, value)
		case name == "contiguous":
			req.Contiguous = value == "yes"
		case name == "cell":
			parts := append(strings.Split(value, ":"), "")
			req.Each = append(req.Each, numa.CellRequest{VCPUs: cpus(g.T, parts[0]), Memory: size(g.T, parts[1]),
				Floating: cpus(g.T, parts[2])})
		default:
			g.Fatalf("unknown word %q", word)
		}
	}
	for i, c := range req.Each {
		req.Each[i].Pages, req.Each[i].Threads = req.Pages, req.Threads
		req.VCPUs, req.Memory = req.VCPUs+c.VCPUs.Len(), req.Memory+c.Memory
	}
	return req
}

func (g *golden) vm(times int, req numa.Request) {
	for range times {
		fmt.Fprintf(&g.out, "%d vCPUs %v\n", req.VCPUs, req.Memory)
		plan, err := numa.Plan(*g.now(), req)
		if err != nil {
			writeError(&g.out, err)
			continue
		}
		writePlan(&g.out, plan)
		if *g.room, err = g.room.Take(plan); err != nil {
			g.Fatal(err)
		}
		g.running = append(g.running, plan)
	}
}

func writeError(b *strings.Builder, err error) {
	var e *farm.Error
	if !errors.As(err, &e) {
		fmt.Fprintf(b, "  %v\n", err)
		return
	}
	fmt.Fprintf(b, "  %s (%s): %s\n  try: %s\n", e.Code, e.Kind, e.Message, e.Hint)
}

func writePlan(b *strings.Builder, p farm.Plan) {
	fmt.Fprintf(b, "  guest %d sockets × %d cores × %d threads, emulator on %v\n", p.Guest.Sockets, p.Guest.Cores,
		p.Guest.Threads, p.Emulator)
	for i, c := range p.Cells {
		fmt.Fprintf(b, "  cell %d: vCPUs %v, %v of node %d", i, c.VCPUs, c.Memory, c.Node)
		if c.PageSize != 0 {
			fmt.Fprintf(b, " in pages of %v", c.PageSize)
		}
		b.WriteString("\n   ")
		for _, v := range c.VCPUs.List() {
			fmt.Fprintf(b, " %v", p.VCPUs[v])
		}
		b.WriteByte('\n')
	}
	if !p.Floating.Empty() {
		fmt.Fprintf(b, "  vCPUs %v float\n", p.Floating)
	}
	if !p.Extra.Empty() {
		fmt.Fprintf(b, "  held beside them: %v\n", p.Extra)
	}
}

func cpus(t *testing.T, s string) farm.CPUSet {
	t.Helper()
	set, err := farm.ParseCPUSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func size(t *testing.T, s string) farm.Bytes {
	t.Helper()
	b, err := farm.ParseBytes(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func count(t *testing.T, s string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
