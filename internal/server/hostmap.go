package server

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/server/hostmap"
)

// MappedHost is a host on a map of the fleet.
type MappedHost struct {
	*hostmap.Host
	State    HostState
	Seen     time.Time
	Warnings int // things that an operator should look at; Get has them in words
}

// UsedCPUs is how many of its threads are held.
func (h MappedHost) UsedCPUs() int { return min(h.HeldCPUs+h.Host.Used.CPUs, h.CPUs) }

// UsedMemory is how much of its memory is held.
func (h MappedHost) UsedMemory() farm.Bytes { return min(h.HeldMemory+h.Host.Used.Memory, h.Memory) }

// Map returns all hosts that the caller may see, by cell and name: from memory, for there may be thousands.
func (hs Hosts) Map(ctx context.Context, who farm.Identity) (seen []MappedHost, err error) {
	all, err := hs.server.hostMap.All(ctx)
	if err != nil {
		return nil, err
	}
	err = hs.server.look(ctx, who, policy.ReadHost, func(c *call) error {
		seen = make([]MappedHost, 0, len(all))
		allowed, last := false, ""
		for i, h := range all {
			if i == 0 || h.Cell != last { // all of a cell, or none
				allowed, last = c.May(action.HostTarget(h.Host)) == nil, h.Cell
			}
			if !allowed {
				continue
			}
			cell, err := c.in(h.Cell)
			if err != nil {
				return err
			}
			seen = append(seen, c.s.mapped(h, cell))
		}
		return nil
	})
	return seen, err
}

func (s *Server) mapped(h *hostmap.Host, cell farm.Cell) MappedHost {
	m := MappedHost{Host: h, State: s.stateOf(h.Host, cell), Seen: s.Links.Seen(h.Host),
		Warnings: len(h.Short) + min(h.Orphans, 1)}
	if s.Links.Unheard(h.ID) != nil {
		m.Warnings++
	}
	if h.Clock.Abs() >= hostlink.ClockWarning {
		m.Warnings++
	}
	if m.State == HostSilent {
		m.Warnings++
	}
	return m
}
