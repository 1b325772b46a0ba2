package capacity

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/capacity"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// farm reads COUNTxHOST, several of them.
func (f planFlags) farm(ctx context.Context, words []string) (all []capacity.Hosts, err error) {
	memory, err := farm.ParseBytes(f.reserveMemory)
	if err != nil {
		return nil, err
	}
	cpus, err := farm.ParseCPUSet(f.reserve)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		count, what, ok := strings.Cut(word, "x")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 1 || n > capacity.MaxHosts || what == "" {
			return nil, app.Usage("write for example 200x2s16c2t256G, or 200xhost.tar.gz", "invalid hosts %q", word)
		}
		h := capacity.Hosts{Kind: what, Count: n, Reserve: farm.HostReserve{CPUs: cpus, Memory: memory}}
		if grid, ok := parseGrid(what); ok {
			h.Topology = grid.Topology()
		} else if h.Topology, err = recorded(ctx, what); err != nil {
			return nil, err
		}
		if unknown := cpus.Minus(h.Topology.Online); !unknown.Empty() {
			return nil, app.Usage("the host's CPUs are "+h.Topology.Online.String(), "a host of %s has no CPUs %v", what, unknown)
		}
		all = append(all, h)
	}
	return all, nil
}

func recorded(ctx context.Context, from string) (farm.Topology, error) {
	tree, err := app.HostTree(ctx, from)
	if err != nil {
		return farm.Topology{}, err
	}
	defer tree.Close()
	t, err := topology.Read(tree)
	if err != nil {
		return t, fmt.Errorf("read %s: %w", from, err)
	}
	return t, nil
}

// parseGrid reads a host as 2s16c2t256G: sockets, cores of each, threads of each core, memory of the host. ok is false
// for what is not written so.
func parseGrid(text string) (g topology.Grid, ok bool) {
	counts := [3]int{}
	for i, unit := range []string{"s", "c", "t"} {
		number, rest, found := strings.Cut(text, unit)
		n, err := strconv.Atoi(number)
		if !found || err != nil || n < 1 || n > farm.MaxCPUs {
			return g, false
		}
		counts[i], text = n, rest
	}
	memory, err := farm.ParseBytes(text)
	if err != nil || memory < farm.GiB || counts[0]*counts[1]*counts[2] > farm.MaxCPUs {
		return g, false
	}
	return topology.Grid{Sockets: counts[0], CoresPerNode: counts[1], Threads: counts[2],
		NodeMemory: memory / farm.Bytes(counts[0])}, true
}

func pageSize(text string) (farm.Bytes, error) {
	if text == "none" {
		return 0, nil
	}
	size, err := farm.ParseBytes(text)
	if err == nil && size != 2*farm.MiB && size != farm.GiB {
		err = app.Usage("write 2M, 1G or none", "--page-size %s is no size of pages", text)
	}
	return size, err
}

// shape is what the flags ask of all VMs.
func (f planFlags) shape(s *farm.Shape) (err error) {
	if s.Threads, err = app.ThreadPolicy("--thread-policy", f.threads); err != nil {
		return err
	}
	s.Cells, err = app.GuestNodes("--numa", f.numa)
	return err
}
