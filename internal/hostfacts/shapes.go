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
}

// agentFile is what is read, and recorded, of the agent's configuration: neither policies nor the names in them.
type agentFile struct {
	DefaultShape shapeFile            `toml:"default_shape"`
	Shapes       map[string]shapeFile `toml:"shapes"`
}

// shapes reads which pages the agent's VMs get: the default shape first, which has no name. There are none where no
// agent is configured. A file that the agent itself would refuse is no fact of the host's.
func (r *reader) shapes() []farm.ShapePages {
	text, ok := r.Large(agentPath)
	if !ok {
		return nil
	}
	var f agentFile
	if err := toml.Unmarshal([]byte(text), &f); err != nil {
		return nil
	}
	out := []farm.ShapePages{{Pages: f.DefaultShape.PageSize}}
	for _, name := range slices.Sorted(maps.Keys(f.Shapes)) {
		out = append(out, farm.ShapePages{Name: name, Pages: f.Shapes[name].PageSize})
	}
	return out
}

// cleanAgent keeps of the agent's configuration what shapes reads.
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
