package server

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/history"
	"github.com/grange-project/grange/internal/server/meter"
	"github.com/grange-project/grange/internal/store"
)

// figuresWithin is what reading them may take of the database.
const figuresWithin = 10 * time.Second

// figures counts the fleet. It reads little of each host, and of VMs their numbers alone.
func (s *Server) figures(ctx context.Context) (f meter.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, figuresWithin)
	defer cancel()
	err = s.look(ctx, action.Itself, policy.ReadHost, func(c *call) error {
		f = meter.Figures{Revision: c.Revision(), Hosts: map[meter.Of]int{}, VMs: map[meter.Of]int{}}
		if err := countHosts(c, f.Hosts); err != nil {
			return err
		}
		vms, err := c.VMsByState()
		if err != nil {
			return err
		}
		for _, n := range vms {
			f.VMs[meter.Of{Cell: n.Cell, State: stateShown(n.Placed, n.State)}] += n.VMs
		}
		orphans, err := c.Orphans("")
		if err != nil {
			return err
		}
		f.Orphans = len(orphans)
		apart, err := c.UsageOutsideCounts()
		if err != nil {
			return err
		}
		f.Outside = map[string]int{}
		for _, n := range apart {
			f.Outside[n.Why] += n.Records
		}
		images, err := store.ImagesOf(c.Tx).All()
		f.Images = len(images)
		return err
	})
	if err != nil {
		return f, err
	}
	warnings, err := s.Links.CAWarnings(ctx)
	f.Warnings = len(warnings)
	f.CPUs, f.Memory = s.capacity()
	return f, err
}

// countHosts counts them by cell and state. Each cell has all states, so that a chart has no gaps.
func countHosts(c *call, n map[meter.Of]int) error {
	hosts, err := c.HostsBrief("")
	if err != nil {
		return err
	}
	cells, err := c.Cells()
	if err != nil {
		return err
	}
	byName := map[string]farm.Cell{}
	for _, cell := range cells {
		byName[cell.Name] = cell
		for _, state := range []HostState{HostOpen, HostClosed, HostDraining, HostSilent, HostFenced} {
			n[meter.Of{Cell: cell.Name, State: string(state)}] = 0
		}
	}
	for _, h := range hosts {
		n[meter.Of{Cell: h.Cell, State: string(c.s.stateOf(h, byName[h.Cell]))}]++
	}
	return nil
}

// stateShown is the state of VMs for those who look at numbers.
func stateShown(placed bool, reported string) string {
	switch {
	case !placed:
		return "waiting"
	case reported == "":
		return "placed"
	}
	return reported
}

// capacity is what hosts have, where this server leads.
func (s *Server) capacity() (map[meter.Of]int, map[meter.Of]farm.Bytes) {
	sums := s.mirror.Sums()
	if sums == nil {
		return nil, nil
	}
	cpus, memory := map[meter.Of]int{}, map[meter.Of]farm.Bytes{}
	for cell, n := range sums {
		cpus[meter.Of{Cell: cell, State: "total"}] = n.CPUs
		cpus[meter.Of{Cell: cell, State: "reserved"}] = n.Reserved
		cpus[meter.Of{Cell: cell, State: "free"}] = n.Free - n.Refused
		cpus[meter.Of{Cell: cell, State: "refused"}] = n.Refused
		memory[meter.Of{Cell: cell, State: "total"}] = n.Memory
		memory[meter.Of{Cell: cell, State: "free"}] = n.FreeMemory
	}
	return cpus, memory
}

// newMeter is what this server exports.
func (s *Server) newMeter(version string) *meter.Meter {
	return meter.New(meter.Sources{Version: version, Leads: s.Leads,
		Figures: func() (meter.Figures, error) { return s.figures(context.Background()) },
		Store:   func() meter.Store { return meter.Store(s.store.Written()) }})
}

// note enters the fleet's figures in the history.
func (s *Server) note(ctx context.Context, _ int64) error {
	f, err := s.figures(ctx)
	if err != nil {
		return err
	}
	values := map[string]float64{}
	add := func(what string, of meter.Of, n float64) {
		values[what+"."+of.State] += n
		if of.Cell != "" {
			values["cells."+of.Cell+"."+what+"."+of.State] += n
		}
	}
	for of, n := range f.Hosts {
		add("hosts", of, float64(n))
	}
	for of, n := range f.VMs {
		add("vms", of, float64(n))
	}
	for of, n := range f.CPUs {
		add("cpus", of, float64(n))
	}
	for of, n := range f.Memory {
		add("memory", of, float64(n))
	}
	values["store.waiting"] = float64(s.store.Written().Waiting)
	return s.history.Add(s.now(), values)
}

// History returns what the fleet was like, for those who may read all of it.
func (s *Server) History(ctx context.Context, who farm.Identity, q history.Query) (a history.Answer, err error) {
	err = s.look(ctx, who, policy.ReadFarm, func(c *call) error {
		if err := c.May(policy.Target{}); err != nil {
			return err
		}
		a, err = s.history.Ask(s.now(), q)
		return err
	})
	return a, err
}

// Metrics lets those scrape who may read the whole fleet.
func (s *Server) Metrics(ctx context.Context, who farm.Identity) (*meter.Meter, error) {
	return s.Meter, s.look(ctx, who, policy.ReadFarm, func(c *call) error { return c.May(policy.Target{}) })
}
