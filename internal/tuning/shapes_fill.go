package tuning

import (
	"cmp"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// filled is what a host takes of VMs of one shape when it is empty.
type filled struct {
	shape farm.ShapePages
	vms   int
	left  int   // CPUs that stay idle
	why   error // why there is no room for one more
}

// fillings places VMs of each shape on the empty host until one is refused. Shapes of unknown size are left out, and so
// are those whose pages the host does not have.
func fillings(h farm.HostFacts, missing map[string]bool) []filled {
	if len(h.Shapes) == 0 || memoryNodes(h.Topology) == 0 || h.Topology.CoresUntold {
		return nil
	}
	var out []filled
	for _, s := range h.Shapes {
		s.CPUs, s.Memory = cmp.Or(s.CPUs, h.Shapes[0].CPUs), cmp.Or(s.Memory, h.Shapes[0].Memory)
		s.Pages = cmp.Or(s.Pages, h.Shapes[0].Pages)
		if s.CPUs < 1 || s.Memory == 0 || missing[s.Name] {
			continue
		}
		out = append(out, fill(h, s))
	}
	return out
}

func fill(h farm.HostFacts, s farm.ShapePages) filled {
	trial := numa.Trial{Room: numa.NewRoom(h.Topology, numa.Reserve{CPUs: h.AgentReserve, Memory: h.AgentMemory}, nil)}
	f := filled{shape: s}
	tuned, err := farm.Shape{}.With(farm.Tuning{Pages: s.Pages})
	if err != nil {
		return f // the agent refuses its configuration
	}
	req := numa.Request{VCPUs: s.CPUs, Memory: s.Memory, Pages: tuned.Pages, Allowed: h.Topology.Online}
	for {
		if _, _, f.why = trial.Place("", req, false); f.why != nil {
			break
		}
		f.vms++
	}
	f.left = trial.Room.Free.Len()
	return f
}

// shapesFill finds shapes that can never start, and, where no shape can use all CPUs, how many each uses.
func shapesFill(h farm.HostFacts, missing map[string]bool) []Finding {
	all := fillings(h, missing)
	idle := len(all) > 0 && h.Shapes[0].CPUs > 0 && h.Shapes[0].Memory > 0
	for _, f := range all {
		idle = idle && (f.vms == 0 || f.left >= f.shape.CPUs)
	}
	cpus := h.Topology.Online.Minus(h.AgentReserve).Len()
	var out []Finding
	for _, f := range all {
		size := fmt.Sprintf("%s and %v", farm.Count(f.shape.CPUs, "vCPU"), f.shape.Memory)
		if n := pagesOf(f.shape); n != "" {
			size += " in " + n
		}
		switch {
		case f.why == nil:
		case f.vms == 0 && farm.IsCode(f.why, farm.CodeTooBig):
			out = append(out, Finding{Severity: Warning, Where: shapeName(f.shape), Wanted: "a size that the host can hold",
				Got:    fmt.Sprintf("a VM of %s can never start: %v", size, f.why),
				Manual: "ask for less memory in it, for more CPUs, or for other pages, in /etc/grange/agent.toml"})
		case f.vms > 0 && idle:
			out = append(out, Finding{Severity: Warning, Where: shapeName(f.shape),
				Wanted: "a size of which VMs use all CPUs",
				Got: fmt.Sprintf("%s of %s fill the memory and use %d of %d CPUs; no shape uses the others",
					farm.Count(f.vms, "VM"), size, cpus-f.left, cpus),
				Manual: "give a shape less memory for each vCPU, or ordinary pages, in /etc/grange/agent.toml"})
		}
	}
	return out
}

// pagesOf is a shape's memory in pages of one size, where it takes no other; "" elsewhere.
func pagesOf(s farm.ShapePages) string {
	size, err := farm.ParseBytes(s.Pages)
	if err != nil || size == 0 || s.Memory%size != 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s", farm.Count(int(s.Memory/size), "page"), pageName(size))
}

func shapeName(s farm.ShapePages) string {
	if s.Name == "" {
		return "the default shape"
	}
	return "shape " + s.Name
}
