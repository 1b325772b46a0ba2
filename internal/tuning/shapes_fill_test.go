package tuning

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// TestShapesFill finds shapes that can never start, and CPUs that no shape uses, on a host of 8 CPUs and 32 GiB.
func TestShapesFill(t *testing.T) {
	shape := func(name string, memory farm.Bytes) farm.ShapePages {
		return farm.ShapePages{Name: name, CPUs: 1, Memory: memory * farm.GiB}
	}
	for name, c := range map[string]struct {
		shapes  []farm.ShapePages
		reserve string
		memory  farm.Bytes // that the agent keeps
		want    []string
	}{
		"all CPUs":              {shapes: []farm.ShapePages{shape("", 4)}},
		"half of the CPUs":      {shapes: []farm.ShapePages{shape("", 8)}, want: []string{"use 4 of 8 CPUs"}},
		"another uses the rest": {shapes: []farm.ShapePages{shape("", 8), shape("small", 1)}},
		"the agent keeps them":  {shapes: []farm.ShapePages{shape("", 8)}, reserve: "2-3,6-7"},
		"half of the nodes' memory is the agent's": {shapes: []farm.ShapePages{shape("", 4)}, memory: 16 * farm.GiB,
			want: []string{"use 4 of 8 CPUs"}},
		"the agent keeps too much": {shapes: []farm.ShapePages{shape("", 16), shape("small", 3)}, memory: farm.GiB,
			want: []string{"can never start"}},
		"never": {shapes: []farm.ShapePages{shape("", 4), shape("huge", 40)}, want: []string{"can never start"}},
		"of the default's size": {shapes: []farm.ShapePages{shape("", 8), {Name: "same"}},
			want: []string{"use 4 of 8 CPUs", "use 4 of 8 CPUs"}},
		"of no known size": {shapes: []farm.ShapePages{{}, {Name: "x", CPUs: 1}}},
	} {
		reserve, err := farm.ParseCPUSet(c.reserve)
		if err != nil {
			t.Fatal(err)
		}
		h := farm.HostFacts{Shapes: c.shapes, AgentReserve: reserve, AgentMemory: c.memory,
			Topology: topology.Grid{Sockets: 2, CoresPerNode: 4, NodeMemory: 16 * farm.GiB}.Topology()}
		found := checkShapesMissPools(h, Profile{})
		if len(found) != len(c.want) {
			t.Errorf("%s: found %+v", name, found)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(found[i].Got, want) {
				t.Errorf("%s: %q, want %q", name, found[i].Got, want)
			}
		}
	}
}
