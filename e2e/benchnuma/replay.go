package main

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// packing is how well a trace was packed.
type packing struct {
	VMs             int     // at the end
	Placed          float64 // vCPUs placed at the end, in percent of all threads
	Refused         int     // VMs
	RefusedVCPUs    int
	RefusedWithRoom int // VMs that were refused although one host had as many free threads and pages, on whatever nodes
	SharedCores     int // cores whose threads belong to different VMs at the end
	Split           int // VMs on more nodes than they have cells, or in more cells than asked
}

// resident is a VM that runs.
type resident struct {
	host int
	plan farm.Plan
}

// replay plays the trace.
func replay(t trace) (packing, error) {
	host, err := t.host()
	if err != nil {
		return packing{}, err
	}
	f := newFleet(numa.NewRoom(host, numa.Reserve{}, nil), t.Hosts)
	running := map[int]resident{}
	var out packing
	for _, e := range t.Events {
		if e.Event == "depart" {
			if vm, ok := running[e.ID]; ok {
				f.give(vm.host, vm.plan)
				delete(running, e.ID)
			}
			continue
		}
		at, plan, ok := f.choose(e.request(host))
		if !ok {
			out.refuse(e, f.rooms)
			continue
		}
		if err := f.take(at, plan); err != nil {
			return out, fmt.Errorf("trace %s: VM %d: %w", t.Name, e.ID, err)
		}
		running[e.ID] = resident{at, plan}
		out.Split += number(nodesOf(plan) > e.Cells || len(plan.Cells) > e.Cells)
	}
	out.VMs = len(running)
	out.finish(running, host, t.Hosts)
	return out, nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func nodesOf(p farm.Plan) int {
	seen := map[int]bool{}
	for _, c := range p.Cells {
		seen[c.Node] = true
	}
	return len(seen)
}

func (p *packing) refuse(e event, rooms []numa.Room) {
	p.Refused++
	p.RefusedVCPUs += e.VCPUs
	for _, r := range rooms {
		pages := 0
		for _, n := range r.Nodes {
			pages += n.Pages[e.page()]
		}
		if r.Free.Len() >= e.VCPUs && farm.Bytes(pages)*e.page() >= e.memory() {
			p.RefusedWithRoom++
			return
		}
	}
}

func (p *packing) finish(running map[int]resident, host farm.Topology, hosts int) {
	vcpus := 0
	owner := make([]map[int]int, hosts) // VM by host CPU, on each host
	for i := range owner {
		owner[i] = map[int]int{}
	}
	for id, vm := range running {
		vcpus += len(vm.plan.VCPUs)
		for _, cpu := range vm.plan.Held().List() {
			owner[vm.host][cpu] = id
		}
	}
	p.Placed = 100 * float64(vcpus) / float64(hosts*host.Online.Len())
	for i := range hosts {
		for _, c := range host.Cores {
			owners := map[int]bool{}
			for _, cpu := range c.Threads.List() {
				if id, ok := owner[i][cpu]; ok {
					owners[id] = true
				}
			}
			p.SharedCores += number(len(owners) > 1)
		}
	}
}
