// Package wire turns the words of package farm into the wire types of api and api/fleet, and back. It decides nothing,
// and it refuses what is no such thing: what is read comes from other machines.
package wire

import (
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// CodeBadWire is an error code; see docs/errors.md.
const CodeBadWire farm.Code = "bad-wire"

// reader keeps the first error of many fields, so that each can be read in one line.
type reader struct{ err error }

func (r *reader) cpus(field, text string) farm.CPUSet {
	s, err := farm.ParseCPUSet(text)
	if err != nil {
		r.refuse(field, err)
	}
	return s
}

// listed returns a list of no more than most parts, and refuses a longer one.
func listed[T any](r *reader, field string, list []T, most int) []T {
	if len(list) > most {
		r.refuse(field, fmt.Errorf("a list of %d", len(list)))
		return nil
	}
	return list
}

func (r *reader) refuse(field string, err error) {
	if r.err == nil {
		r.err = &farm.Error{Kind: farm.Invalid, Code: CodeBadWire, Message: "what was sent makes no sense: " + field,
			Err: err, Hint: "both sides are to be of releases that know each other; see docs/guide/hosts.md"}
	}
}

// Plan is a plan on the wire.
func Plan(p farm.Plan) api.Plan {
	v := api.Plan{Emulator: p.Emulator.String(), IOThread: p.IOThread.String(), Sockets: p.Guest.Sockets,
		Cores: p.Guest.Cores, Threads: p.Guest.Threads, Floating: p.Floating.String(), Extra: p.Extra.String()}
	for _, pin := range p.VCPUs {
		v.VCPUs = append(v.VCPUs, pin.String())
	}
	for _, c := range p.Cells {
		v.Cells = append(v.Cells, api.Cell{VCPUs: c.VCPUs.String(), Memory: uint64(c.Memory), Node: c.Node,
			PageSize: uint64(c.PageSize), Remote: c.Remote})
	}
	return v
}

// PlanOrNil is a plan on the wire where there may be none.
func PlanOrNil(p farm.Plan) *api.Plan {
	if p.VCPUs == nil && p.Cells == nil {
		return nil
	}
	v := Plan(p)
	return &v
}

// ParsePlan reads a plan. The error is a *farm.Error of kind Invalid.
func ParsePlan(v api.Plan) (farm.Plan, error) {
	var r reader
	p := r.plan(v)
	return p, r.err
}

func (r *reader) plan(v api.Plan) farm.Plan {
	p := farm.Plan{Emulator: r.cpus("emulator", v.Emulator), IOThread: r.cpus("iothread", v.IOThread),
		Guest:    farm.GuestTopology{Sockets: v.Sockets, Cores: v.Cores, Threads: v.Threads},
		Floating: r.cpus("floating", v.Floating), Extra: r.cpus("extra", v.Extra)}
	if len(v.VCPUs) > farm.MaxCPUs {
		r.refuse("vcpus", fmt.Errorf("%d vCPUs", len(v.VCPUs)))
		return farm.Plan{}
	}
	for _, text := range v.VCPUs {
		p.VCPUs = append(p.VCPUs, r.cpus("vcpus", text))
	}
	for _, c := range listed(r, "cells", v.Cells, farm.MaxCPUs) {
		p.Cells = append(p.Cells, farm.GuestCell{VCPUs: r.cpus("cells", c.VCPUs), Memory: farm.Bytes(c.Memory),
			Node: c.Node, PageSize: farm.Bytes(c.PageSize), Remote: c.Remote})
	}
	return p
}
