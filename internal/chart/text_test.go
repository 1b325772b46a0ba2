package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func held(t *testing.T, by map[string]string) map[int]string {
	t.Helper()
	out := map[int]string{}
	for name, list := range by {
		set, err := farm.ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, cpu := range set.List() {
			out[cpu] = name
		}
	}
	return out
}

func TestHostPicture(t *testing.T) {
	cern := topologytest.WithPages(topologytest.CERN2650v2(), 2*farm.MiB, 14336)
	cern.Nodes[0].Pages[0].Free = 512
	busy := held(t, map[string]string{"atlas-17": "0-3,16-19", "cms": "4-6,20-22", "lhcb-production-7": "8-15,24-31"})
	uma := topology.Grid{Sockets: 2, CoresPerNode: 4, NodeMemory: 8 * farm.GiB}.Topology()
	uma.Nodes = []farm.Node{{ID: 0, CPUs: uma.Online, Memory: 16 * farm.GiB, Free: 3 * farm.GiB}}
	for i := range uma.Cores {
		uma.Cores[i].Node = 0
	}
	hybrid := topology.Grid{Sockets: 1, CoresPerNode: 7, Threads: 2, NodeMemory: 32489480 * farm.KiB}.Topology()
	for i := 4; i < 7; i++ {
		hybrid.Cores[i].Threads = farm.NewCPUSet(i)
	}
	hybrid.Online = farm.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	far := topology.Grid{Sockets: 1, CoresPerNode: 2, NodeMemory: 4 * farm.GiB}.Topology()
	far.Nodes[0].Memory = 0
	far.Nodes = append(far.Nodes, farm.Node{ID: 1, Memory: 8 * farm.TiB, Free: 10 * farm.GiB})
	for name, c := range map[string]struct {
		host    farm.Topology
		holders map[int]string
		width   int
	}{
		"cern-wide":   {cern, busy, 160},
		"cern-80":     {cern, busy, 80},
		"cern-40":     {cern, busy, 40},
		"cern-narrow": {cern, busy, 10},
		"cern-empty":  {cern, nil, 100},
		"epyc-120":    {topologytest.EPYC256(), held(t, map[string]string{"a": "0-7,128-135", "b": "64,192"}), 120},
		"uma":         {uma, held(t, map[string]string{"x\x1b[2J": "1"}), 80},
		"hybrid":      {hybrid, held(t, map[string]string{"vm": "0,7,4"}), 50},
		"hybrid-40":   {hybrid, held(t, map[string]string{"atlas": "0,7,4"}), 40},
		"memory-only": {far, nil, 80},
		"nothing":     {farm.Topology{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Text(c.host, c.holders, c.width)
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(line) - 1; c.width > 10 && n > c.width {
					t.Errorf("a line of %d columns in %d: %s", n, c.width, line)
				}
			}
			file := filepath.Join("testdata", "hostpicture", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Error(d)
			}
		})
	}
}
