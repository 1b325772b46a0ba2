package placement

import (
	"maps"
	"slices"
	"unique"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Fleet is all hosts with what they hold. It is kept by what follows, each in time that hardly grows with the number of
// hosts, and is not safe for several goroutines.
type Fleet struct {
	cells  map[string]*cell
	hosts  map[string]*host            // by ID
	vms    map[string]*held            // by ID
	at     map[string]map[string]*held // VMs by host and ID, of hosts that are not known too
	groups groups                      // server groups
	kinds  map[kind][]numa.Room        // rooms whose index other hosts of the kind use too

	uses  uint64 // of classes so far
	slots int    // of all classes together
}

// NewFleet is a fleet of nothing.
func NewFleet() *Fleet {
	return &Fleet{cells: map[string]*cell{}, hosts: map[string]*host{}, vms: map[string]*held{},
		at: map[string]map[string]*held{}, groups: groups{}, kinds: map[kind][]numa.Room{}}
}

// held is what a VM holds.
type held struct {
	vm, project, host, cell, group string
	size                           farm.Quota
	bandwidth                      farm.Bandwidth
	cpus                           farm.CPUSet // that it holds
	memory                         []nodeMemory
}

// nodeMemory is a VM's memory of one node, in pages of one size.
type nodeMemory struct {
	bytes, page farm.Bytes
	node        int
}

func hold(p Placed) *held {
	// One text for each name, however many VMs have it: a farm has hundreds of thousands.
	h := &held{vm: p.VM, project: interned(p.Project), host: interned(p.Host), cell: interned(p.Cell),
		group: interned(p.Group), size: p.Size, bandwidth: p.Bandwidth}
	h.size.VMs = 1
	if len(p.Plan.VCPUs) == 0 && len(p.Plan.Cells) == 0 {
		return h
	}
	h.cpus, h.memory = p.Plan.Held(), make([]nodeMemory, 0, len(p.Plan.Cells))
	for _, c := range p.Plan.Cells {
		h.memory = append(h.memory, nodeMemory{bytes: c.Memory, page: c.PageSize, node: c.Node})
	}
	return h
}

func interned(text string) string { return unique.Make(text).Value() }

// planned reports that the VM holds something on its host that is known.
func (h *held) planned() bool { return h.memory != nil }

// plan is the VM's with all that placement needs: all threads as one, memory by node and page size.
func (h *held) plan() farm.Plan {
	if !h.planned() {
		return farm.Plan{}
	}
	out := farm.Plan{VCPUs: []farm.CPUSet{h.cpus}, Cells: make([]farm.GuestCell, len(h.memory))}
	for i, m := range h.memory {
		out.Cells[i] = farm.GuestCell{Memory: m.bytes, PageSize: m.page, Node: m.node}
	}
	return out
}

func (h *held) placed() Placed {
	return Placed{VM: h.vm, Project: h.project, Host: h.host, Cell: h.cell, Group: h.group, Size: h.size,
		Bandwidth: h.bandwidth,
		Plan:      h.plan()}
}

// SetCell enters a cell, or its change: packing, limits, overcommit.
func (f *Fleet) SetCell(c farm.Cell) {
	to := f.cell(c.Name)
	again := !to.known || to.factor() != factorOf(c)
	to.Cell, to.known = c, true
	f.forget(to)
	if again {
		for _, h := range to.slots {
			if h != nil {
				f.build(h)
			}
		}
	}
}

// RemoveCell forgets a cell. Its hosts and VMs stay, and take nothing new.
func (f *Fleet) RemoveCell(name string) {
	if c := f.cells[name]; c != nil {
		c.Cell, c.known = farm.Cell{Name: name}, false
		f.forget(c)
		f.tidy(c)
	}
}

// cell is a cell that was told of, or that hosts and VMs name.
func (f *Fleet) cell(name string) *cell {
	c := f.cells[name]
	if c == nil {
		c = newCell(name)
		f.cells[name] = c
	}
	return c
}

// tidy removes a cell that nobody names any more.
func (f *Fleet) tidy(c *cell) {
	if !c.known && c.hosts() == 0 && c.used == (farm.Quota{}) {
		f.forget(c)
		delete(f.cells, c.Name)
	}
}

// Set enters a host, or its change. What it holds of VMs stays.
func (f *Fleet) Set(told Host) {
	h := f.hosts[told.ID]
	if h != nil && h.cell.Name != told.Cell {
		f.leave(h)
		h = nil
	}
	if h == nil {
		h = &host{vms: f.at[told.ID]}
		if h.vms == nil {
			h.vms = map[string]*held{}
			f.at[told.ID] = h.vms
		}
		f.hosts[told.ID] = h
		h.cell = f.cell(told.Cell)
		h.cell.join(h)
	} else {
		h.cell.lose(h)
		h.cell.strip(h)
	}
	told.Topology.CPU = farm.CPUModel{} // its flags are larger than all the rest
	h.Host = told
	f.build(h)
	h.cell.count(h)
	h.cell.equip(h)
}

// Label sets the labels of a host. Nothing else of it changes.
func (f *Fleet) Label(id string, labels map[string]string) {
	if h := f.hosts[id]; h != nil && !maps.Equal(h.Labels, labels) {
		h.Labels = labels
		h.cell.changed(h.slot, true)
	}
}

// Connect sets the networks that a host can carry. Nothing else of it changes.
func (f *Fleet) Connect(id string, networks []string) {
	if h := f.hosts[id]; h != nil && !slices.Equal(h.Networks, networks) {
		h.cell.strip(h)
		h.Networks = networks
		h.cell.equip(h)
		h.cell.changed(h.slot, true)
	}
}

// build makes the host's room anew from what it has and holds.
func (f *Fleet) build(h *host) {
	topology := h.Topology
	if factor := h.cell.factor(); factor != 1 {
		topology = topology.Overcommitted(factor)
	}
	h.empty = f.emptyRoom(topology, numa.Reserve{CPUs: h.Reserve.CPUs, Memory: h.Reserve.Memory}, h.Taken)
	h.Topology.Cores, h.Topology.L3, h.Topology.Distance, h.Topology.Sockets =
		h.empty.Topology.Cores, h.empty.Topology.L3, h.empty.Topology.Distance, nil
	h.empty.Topology.Sockets = nil
	h.fill()
}

// emptyRoom is the room of a host without VMs of the fleet. Most of it is kept once for all hosts with the same
// processors.
func (f *Fleet) emptyRoom(t farm.Topology, reserve numa.Reserve, taken []farm.Plan) numa.Room {
	of := kindOf(t)
	for _, like := range f.kinds[of] {
		if r := numa.NewRoomLike(like, t, reserve, taken); r.Shares(like) {
			if r.Equal(like) {
				r.Nodes = like.Nodes // nobody changes them
			}
			return r
		}
	}
	r := numa.NewRoom(t, reserve, taken)
	if len(f.kinds[of]) < maxLike {
		f.kinds[of] = append(f.kinds[of], r)
	}
	return r
}

// Remove forgets a host. Its VMs stay in the sums, and are there again when it is.
func (f *Fleet) Remove(id string) {
	if h := f.hosts[id]; h != nil {
		f.leave(h)
	}
}

func (f *Fleet) leave(h *host) {
	h.cell.lose(h)
	h.cell.strip(h)
	h.cell.leave(h)
	delete(f.hosts, h.ID)
	if len(h.vms) == 0 {
		delete(f.at, h.ID)
	}
	f.tidy(h.cell)
}

// Restore enters a VM that has its place already, as after a start. It may exceed what the host has.
func (f *Fleet) Restore(p Placed) {
	f.Release(p.VM)
	v := hold(p)
	h := f.hosts[p.Host]
	f.enter(v, h)
	if h != nil {
		h.restore(v)
	}
}

// enter reserves a VM; its room on the host is still to be taken.
func (f *Fleet) enter(v *held, h *host) {
	f.vms[v.vm] = v
	at := f.at[v.host]
	if at == nil {
		at = map[string]*held{}
		f.at[v.host] = at
	}
	if h != nil {
		h.cell.lose(h)
	}
	at[v.vm] = v
	if h != nil {
		h.cell.count(h)
		h.cell.addProject(v.project, h.slot, 1)
	}
	f.cell(v.cell).use(v.size, 1)
	f.groups.add(v, 1)
}

// Release gives a VM's room back, and tells where that was. Releasing twice is no error.
func (f *Fleet) Release(vm string) (p Placed, ok bool) {
	v := f.vms[vm]
	if v == nil {
		return Placed{}, false
	}
	h := f.hosts[v.host]
	delete(f.vms, vm)
	if h != nil {
		h.cell.lose(h)
	}
	delete(f.at[v.host], vm)
	if h != nil {
		h.release(v)
		h.cell.count(h)
		h.cell.addProject(v.project, h.slot, -1)
		h.changed(true)
	} else if len(f.at[v.host]) == 0 {
		delete(f.at, v.host)
	}
	c := f.cell(v.cell)
	c.use(v.size, -1)
	f.tidy(c)
	f.groups.add(v, -1)
	return v.placed(), true
}

// groups has the VMs of each server group: how many are on each host.
type groups map[string]map[string]int

// add counts a VM n times.
func (g groups) add(v *held, n int) {
	if v.group == "" {
		return
	}
	hosts := g[v.group]
	if hosts == nil {
		hosts = map[string]int{}
		g[v.group] = hosts
	}
	if hosts[v.host] += n; hosts[v.host] == 0 {
		delete(hosts, v.host)
	}
	if len(hosts) == 0 {
		delete(g, v.group)
	}
}

// Refuse reports that a host takes no new VM, and why; "": it does again. Closed is as Host.Closed. It
// returns whether that is new.
func (f *Fleet) Refuse(id, why string, closed bool) bool {
	h := f.hosts[id]
	if h == nil || h.Refuses == why && h.Closed == closed {
		return false
	}
	h.cell.lose(h)
	h.Refuses, h.Closed = why, closed
	h.cell.count(h)
	h.cell.changed(h.slot, true)
	return true
}

// Place returns where a VM is.
func (f *Fleet) Place(vm string) (p Placed, ok bool) {
	if v := f.vms[vm]; v != nil {
		return v.placed(), true
	}
	return Placed{}, false
}

// On lists the VMs of a host, in no order.
func (f *Fleet) On(host string) []string {
	out := make([]string, 0, len(f.at[host]))
	for vm := range maps.Keys(f.at[host]) {
		out = append(out, vm)
	}
	return out
}

// Hosts is how many hosts there are.
func (f *Fleet) Hosts() int { return len(f.hosts) }
