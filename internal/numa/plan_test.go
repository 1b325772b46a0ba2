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

// TestGolden reads each testdata/*.txt: lines of "host NAME", "reserve CPUS MEMORY", "pages SIZE COUNT" and
// "vm COUNT VCPUS MEMORY [PAGESIZE]", then "---", then the plans. A new file is a new case: write the head, run with -update.
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
	var topo farm.Topology
	var reserve numa.Reserve
	var room *numa.Room
	var b strings.Builder
	for line := range strings.Lines(head) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch f[0] {
		case "host":
			topo = hosts[f[1]]()
		case "reserve":
			reserve = numa.Reserve{CPUs: cpus(t, f[1]), Memory: size(t, f[2])}
		case "pages":
			topo = topologytest.WithPages(topo, size(t, f[1]), count(t, f[2]))
		case "vm":
			if room == nil {
				r := numa.NewRoom(topo, reserve, nil)
				room = &r
			}
			req := numa.Request{VCPUs: count(t, f[2]), Memory: size(t, f[3]), Allowed: topo.Online, Service: reserve.CPUs}
			if len(f) > 4 {
				req.Pages = []farm.Bytes{size(t, f[4])}
			}
			for range count(t, f[1]) {
				fmt.Fprintf(&b, "%d vCPUs %v\n", req.VCPUs, req.Memory)
				plan, err := numa.Plan(*room, req)
				if err != nil {
					writeError(&b, err)
					continue
				}
				writePlan(&b, plan)
				if *room, err = room.Take(plan); err != nil {
					t.Fatal(err)
				}
			}
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return b.String()
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
	fmt.Fprintf(b, "  guest %d sockets × %d cores × %d threads, emulator on %v\n", p.Guest.Sockets, p.Guest.Cores, p.Guest.Threads, p.Emulator)
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
