package pages

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// outlook is what would come of a VM that is not made yet.
type outlook struct {
	Project string
	Quota   []gauge
	Nowhere string   // why the project has no cell
	Gets    []string // of the shape, for people
	Asked   bool     // the form says enough for an answer
	Failed  *trouble
	Where   where
}

// gauge is how much of a bound is used: drawn as a bar.
type gauge struct {
	Name, Used, Limit string // Limit "": nothing bounds it
	Percent, More     int    // of the bar: what is used, and what the new VM adds
	Over              bool
}

// where is which hosts would take a VM, and what keeps it from the others.
type where struct {
	Fits, Hosts int
	Percent     int
	Sums        []whySum
	Changes     []string
}

// whySum is how many hosts one constraint refuses.
type whySum struct {
	Constraint string
	Hosts      int
	Percent    int
	Example    string
}

func (v *visit) outlook(f vmForm, projects []server.ProjectView, shapes []farm.Shape) (outlook, error) {
	look := outlook{Project: f.Project}
	order, err := f.order()
	if err != nil {
		t := troubleOf(err)
		look.Failed = &t
		return look, nil
	}
	shape := shapeOf(order, shapes)
	if i := slices.IndexFunc(projects, func(p server.ProjectView) bool { return p.Name == f.Project }); i >= 0 {
		look.Quota = quotaGauges(projects[i].Quota, projects[i].Used, shape.Quota())
		look.Nowhere = projects[i].Nowhere
	}
	if shape.CPUs == 0 || shape.Memory == 0 {
		return look, nil
	}
	look.Asked, look.Gets = true, gets(shape)
	order.Name = "" // of it, nothing is asked here
	e, err := v.Server.Why(v.ctx(), v.who, order)
	if known, ok := errors.AsType[*farm.Error](err); ok {
		t := troubleOf(known)
		look.Failed = &t
		return look, nil
	}
	look.Where = whereOf(e)
	return look, err
}

// shapeOf is about what the VM would get: the server has the last word.
func shapeOf(o server.CreateVM, shapes []farm.Shape) farm.Shape {
	var s farm.Shape
	if i := slices.IndexFunc(shapes, func(s farm.Shape) bool { return s.Name == o.Shape }); i >= 0 {
		s = shapes[i]
	}
	if o.CPUs != 0 {
		s.CPUs = o.CPUs
	}
	if o.Memory != 0 {
		s.Memory = o.Memory
	}
	if o.Scratch != nil {
		s.Scratch = *o.Scratch
	}
	return s
}

// quotaGauges are a bar for each thing of a quota.
func quotaGauges(limit, used, more farm.Quota) []gauge {
	one := func(name string, limit, used, more float64, text func(float64) string) gauge {
		g := gauge{Name: name, Used: text(used)}
		if limit == 0 {
			return g
		}
		g.Limit, g.Over = text(limit), used+more > limit
		g.Percent = min(100, int(100*used/limit+0.5))
		g.More = min(100-g.Percent, int(100*more/limit+0.5))
		return g
	}
	whole := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	bytes := func(n float64) string { return size(farm.Bytes(n)) }
	return []gauge{one("VMs", float64(limit.VMs), float64(used.VMs), float64(more.VMs), whole),
		one("CPUs", float64(limit.CPUs), float64(used.CPUs), float64(more.CPUs), whole),
		one("Memory", float64(limit.Memory), float64(used.Memory), float64(more.Memory), bytes),
		one("Disk", float64(limit.Scratch), float64(used.Scratch), float64(more.Scratch), bytes)}
}

// gets is what a shape gives its VM, for people.
func gets(s farm.Shape) []string {
	cpus := farm.Count(s.CPUs, "vCPU")
	switch s.Threads {
	case farm.IsolateCores:
		cpus += ", each alone on a core"
	case farm.RequireSiblings:
		cpus += ", each on a thread of its own, on whole cores only"
	default:
		cpus += ", each on a thread of its own, on whole cores first"
	}
	out := []string{cpus, s.Memory.String() + " of memory on the node of its threads, in " + pagesText(s.Pages)}
	switch {
	case s.Cells == 1:
		out = append(out, "one NUMA node in the guest")
	case s.Cells > 1:
		out = append(out, fmt.Sprintf("%d NUMA nodes in the guest, each on one of the host", s.Cells))
	}
	switch {
	case s.CPUModel != "":
		out = append(out, "processor: "+s.CPUModel)
	case s.Purpose == farm.PurposeService:
		out = append(out, "a processor that lets it move between hosts")
	default:
		out = append(out, "the host's own processor")
	}
	if s.Emulator == farm.EmulatorIsolate {
		out = append(out, "a CPU more for QEMU itself")
	}
	if s.Display {
		out = append(out, "a screen, keyboard and mouse")
	}
	if disk := s.DiskSpace(); disk != 0 {
		out = append(out, size(disk)+" of disk beside its image")
	} else {
		out = append(out, "no scratch disk: /tmp is in memory")
	}
	return out
}

func pagesText(pages []farm.Bytes) string {
	if len(pages) == 0 {
		return "ordinary pages"
	}
	var names []string
	for _, p := range pages {
		if p == 0 {
			names = append(names, "ordinary ones")
			continue
		}
		names = append(names, p.String()+" pages")
	}
	return strings.Join(names, ", else ")
}
