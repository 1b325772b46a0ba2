package main

import (
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// scan is the peer: numa.Plan on one host after the other. First fit takes the first that has room; best fit asks all
// of them, and takes the one where the plan costs least, as the placer does. Nothing is committed; when the fleet is
// full it begins anew, half full.
func (b *bench) scan(span time.Duration, best bool) (perSecond float64, err error) {
	placed, start, rooms := 0, time.Now(), slices.Clone(b.rooms)
	for time.Since(start) < span || placed == 0 {
		at, plan, ok := choose(rooms, b.draw(), best)
		if !ok {
			rooms = slices.Clone(b.rooms)
			continue
		}
		if rooms[at], err = rooms[at].Take(plan); err != nil {
			return 0, err
		}
		placed++
	}
	return float64(placed) / time.Since(start).Seconds(), nil
}

func choose(rooms []numa.Room, s farm.Shape, best bool) (at int, plan farm.Plan, ok bool) {
	var least numa.Cost
	for i, r := range rooms {
		p, err := numa.Plan(r, numa.Request{VCPUs: s.CPUs, Memory: s.Memory, Pages: s.Pages, Allowed: r.Topology.Online,
			Threads: s.Threads, Cells: s.Cells})
		if err != nil {
			continue
		}
		if !best {
			return i, p, true
		}
		if cost := numa.Waste(r, p); !ok || cost.Less(least) {
			at, plan, least, ok = i, p, cost, true
		}
	}
	return at, plan, ok
}
