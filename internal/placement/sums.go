package placement

import "github.com/grange-project/grange/internal/farm"

// Sums are what the hosts of a cell have together.
type Sums struct {
	CPUs, Reserved, Free int
	Refused              int        // of Free: on hosts that take nothing new
	Memory, FreeMemory   farm.Bytes // huge pages included
}

// Sums returns those of all cells that have hosts.
func (f *Fleet) Sums() map[string]Sums {
	all := map[string]Sums{}
	for _, h := range f.hosts {
		s := all[h.Cell]
		s.CPUs += h.Topology.Online.Len()
		s.Reserved += h.Reserve.CPUs.And(h.Topology.Online).Len()
		s.Free += h.room.Free.Len()
		if h.Refuses != "" {
			s.Refused += h.room.Free.Len()
		}
		for _, n := range h.Topology.Nodes {
			s.Memory += n.Memory
			free := h.room.Nodes[n.ID]
			s.FreeMemory += free.Memory
			for size, pages := range free.Pages {
				s.FreeMemory += farm.Bytes(pages) * size
			}
		}
		all[h.Cell] = s
	}
	return all
}
