package main

import (
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// fleet is hosts that are all alike, and what each has left. A VM goes to the host that its plan there costs least.
// What each host offers a request is remembered until the host changes.
type fleet struct {
	rooms  []numa.Room
	offers map[shape][]*offer // by host; nil where it is not known
}

// shape is what tells requests of a trace apart.
type shape struct {
	vcpus, cells int
	memory       farm.Bytes
}

// offer is a host's answer to a shape; ok is false where it refuses.
type offer struct {
	plan farm.Plan
	cost numa.Cost
	ok   bool
}

func newFleet(empty numa.Room, hosts int) *fleet {
	f := &fleet{rooms: make([]numa.Room, hosts), offers: map[shape][]*offer{}}
	for i := range f.rooms {
		f.rooms[i] = empty
	}
	return f
}

// choose gives the host where the request costs least, and its plan there.
func (f *fleet) choose(req numa.Request) (host int, plan farm.Plan, ok bool) {
	s := shape{req.VCPUs, req.Cells, req.Memory}
	if f.offers[s] == nil {
		f.offers[s] = make([]*offer, len(f.rooms))
	}
	best := -1
	var least numa.Cost
	for i, o := range f.offers[s] {
		if o == nil {
			o = f.offer(i, req)
			f.offers[s][i] = o
		}
		if o.ok && (best < 0 || o.cost.Less(least)) {
			best, least = i, o.cost
		}
	}
	if best < 0 {
		return 0, farm.Plan{}, false
	}
	return best, f.offers[s][best].plan, true
}

func (f *fleet) offer(host int, req numa.Request) *offer {
	plan, err := numa.Plan(f.rooms[host], req)
	if err != nil {
		return &offer{}
	}
	return &offer{plan: plan, cost: numa.Waste(f.rooms[host], plan), ok: true}
}

func (f *fleet) take(host int, plan farm.Plan) error {
	left, err := f.rooms[host].Take(plan)
	if err == nil {
		f.change(host, left)
	}
	return err
}

func (f *fleet) give(host int, plan farm.Plan) { f.change(host, f.rooms[host].Give(plan)) }

func (f *fleet) change(host int, room numa.Room) {
	f.rooms[host] = room
	for _, offers := range f.offers {
		offers[host] = nil
	}
}
