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
	delete(l.metal, key)
	room := l.room(key)
	conflicts = l.heldByVMs(key, cpus)
	if cpus = l.fill(cpus, count, room.Free); cpus.Len() < count {
		conflicts = append(conflicts, fmt.Sprintf("%d of %d CPUs are free; %s", cpus.Len(), count, l.holders()))
	}
	var free farm.Bytes
	for _, n := range room.Nodes {
		free += n.Memory
	}
	if memory > free {
		conflicts = append(conflicts, fmt.Sprintf("%v of %v memory are free; %s", free, memory, l.holders()))
	}
	plan = farm.Plan{Extra: cpus, Cells: spread(l.topology, cpus, memory)}
	l.metal[key] = plan
	l.serve() // an earlier claim of this job may have been larger
	return plan, conflicts
}

// heldByVMs says, for people, which of these CPUs are held by VMs other than that of the batch job key.
func (l *Ledger) heldByVMs(key string, cpus farm.CPUSet) (lines []string) {
	for id, g := range l.grants {
		if both := g.plan.Held().And(cpus); !both.Empty() && l.keys[id] != key {
			lines = append(lines, fmt.Sprintf("CPUs %v are held by %s", both, g.holder))
		}
	}
	slices.Sort(lines)
	return lines
}

// fill adds free CPUs to cpus, from the last core on, until there are count.
func (l *Ledger) fill(cpus farm.CPUSet, count int, free farm.CPUSet) farm.CPUSet {
	for _, core := range slices.Backward(l.topology.Cores) {
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
	l.metal[key] = plan
}

// ReleaseMetal ends the claim of a job on the host, and grants to those who wait. Releasing twice is no error.
func (l *Ledger) ReleaseMetal(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.metal, key)
	l.serve()
}
