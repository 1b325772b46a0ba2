package hostfacts

import (
	"bytes"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
)

// agentPath is where the agent's configuration is by default.
const agentPath = "etc/grange/agent.toml"

// shapeFile is a shape of the agent's configuration, as far as an audit looks at it.
type shapeFile struct {
	PageSize string `toml:"page_size"`
	CPUs     int    `toml:"cpus,omitempty"`
	Memory   string `toml:"memory,omitempty"`
}

// facts is the shape in words of the farm. A size that the agent refuses is none.
func (s shapeFile) facts(name string) farm.ShapePages {
	memory, _ := farm.ParseBytes(s.Memory)
	return farm.ShapePages{Name: name, Pages: s.PageSize, CPUs: s.CPUs, Memory: memory}
}

// agentFile is what is read, and recorded, of the agent's configuration: neither policies nor the names in them.
type agentFile struct {
	ReservedCPUs   string               `toml:"reserved_cpus,omitempty"`
	ReservedMemory string               `toml:"reserved_memory,omitempty"`
	DefaultShape   shapeFile            `toml:"default_shape"`
	Shapes         map[string]shapeFile `toml:"shapes"`
}

// readAgent reads which size and pages the agent's VMs get: the default shape first, which has no name; and the CPUs
// and the memory that the agent keeps from VMs. There are none where no agent is configured. A file that the agent
// itself would refuse is no fact of the host's.
func (r *reader) readAgent(h *farm.HostFacts) {
	text, ok := r.Large(agentPath)
	if !ok {
		return
	}
	var f agentFile
	if err := toml.Unmarshal([]byte(text), &f); err != nil {
		return
	}
	h.Shapes = append(h.Shapes, f.DefaultShape.facts(""))
	for _, name := range slices.Sorted(maps.Keys(f.Shapes)) {
		h.Shapes = append(h.Shapes, f.Shapes[name].facts(name))
	}
	h.AgentReserve, _ = farm.ParseCPUSet(f.ReservedCPUs)
	var all farm.Bytes
	for _, n := range h.Topology.Nodes {
		all += n.Memory
	}
	h.AgentMemory = farm.AutoReserved(all)
	if f.ReservedMemory != "" && f.ReservedMemory != "auto" {
		h.AgentMemory, _ = farm.ParseBytes(f.ReservedMemory)
	}
}

// cleanAgent keeps of the agent's configuration what readAgent reads.
func cleanAgent(text []byte) []byte {
	var f agentFile
	if err := toml.Unmarshal(text, &f); err != nil {
		return nil
	}
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(f); err != nil {
		return nil
	}
	return b.Bytes()
}
