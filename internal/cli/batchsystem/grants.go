package batchsystem

import (
	"io/fs"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
)

// grants returns the most memory that an agent with this configuration has for one VM on the host below root: ordinary
// memory less what it keeps for the host, or the huge pages of one size; 0 where the host cannot be read.
func grants(root fs.FS, c config.Agent) farm.Bytes {
	host, err := topology.Read(root)
	if err != nil {
		return 0
	}
	var all farm.Bytes
	for _, n := range host.Nodes {
		all += n.Memory
	}
	room := numa.NewRoom(host.Overcommitted(c.MemoryOvercommit), numa.Reserve{Memory: c.ReservedOf(all)}, nil)
	var ordinary, most farm.Bytes
	pages := map[farm.Bytes]farm.Bytes{}
	for _, n := range room.Nodes {
		ordinary += n.Memory
		for size, number := range n.Pages {
			pages[size] += size * farm.Bytes(number)
		}
	}
	for _, pool := range pages {
		most = max(most, pool)
	}
	return max(ordinary, most)
}
