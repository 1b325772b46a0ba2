package ledger

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// ClaimMetal claims CPUs and memory for the batch job key, which runs on the host, in place of what it has claimed
// before. The batch system has decided: what of it others hold is claimed as well, and returned as conflicts, for
// people. Where the batch system names no CPUs but says how many, whole cores from the end of the host are claimed, for
// VMs are placed from its beginning.
func (l *Ledger) ClaimMetal(key string, cpus farm.CPUSet, count int, memory farm.Bytes) (plan farm.Plan,
	conflicts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims.metal, key)
	room := l.claims.room(key)
	holders := func() string { return l.claims.holders(sight{all: true}) }
	conflicts = l.claims.heldByVMs(key, cpus)
	if cpus = fill(l.claims.topology, cpus, count, room.Free); cpus.Len() < count {
		conflicts = append(conflicts, fmt.Sprintf("%d of %d CPUs are free; %s", cpus.Len(), count, holders()))
	}
	var free farm.Bytes
	for _, n := range room.Nodes {
		free += n.Memory
	}
	if memory > free {
		conflicts = append(conflicts, fmt.Sprintf("%v of %v memory are free; %s", free, memory, holders()))
	}
	plan = farm.Plan{Extra: cpus, Cells: spread(l.claims.topology, cpus, memory)}
	l.claims.metal[key] = plan
	l.serve() // an earlier claim of this job may have been larger
	return plan, conflicts
}

// fill adds free CPUs of the host to cpus, from the last core on, until there are count.
func fill(t farm.Topology, cpus farm.CPUSet, count int, free farm.CPUSet) farm.CPUSet {
	for _, core := range slices.Backward(t.Cores) {
		if cpus.Len() >= count {
			break
		}
		for cpu := range core.Threads.And(free).All() {
			if cpus.Len() < count {
				cpus = cpus.Or(farm.NewCPUSet(cpu))
			}
		}
	}
	return cpus
}

// spread puts memory on the nodes of the CPUs, in proportion: there the kernel takes it from first. Without CPUs, on
// all.
func spread(t farm.Topology, cpus farm.CPUSet, memory farm.Bytes) []farm.GuestCell {
	var cells []farm.GuestCell
	if memory == 0 {
		return nil
	}
	if cpus.Empty() {
		cpus = t.Online
	}
	left, count := memory, farm.Bytes(cpus.Len())
	for _, n := range t.Nodes {
		here := farm.Bytes(n.CPUs.And(cpus).Len())
		if here == 0 {
			continue
		}
		part := left / count * here // of what is left, so that nothing is lost by rounding
		if here == count {
			part = left
		}
		cells = append(cells, farm.GuestCell{Node: n.ID, Memory: part})
		left, count = left-part, count-here
	}
	return cells
}

// AdoptMetal enters a claim of a job on the host as ClaimMetal returned it, after a restart.
func (l *Ledger) AdoptMetal(key string, plan farm.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims.metal[key] = plan
}

// ReleaseMetal ends the claim of a job on the host, and grants to those who wait. Releasing twice is no error.
func (l *Ledger) ReleaseMetal(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claims.metal, key)
	l.serve()
}
