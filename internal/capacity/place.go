package capacity

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

// place is what takes jobs: a host, or a VM that stays on one.
type place struct {
	id     string
	kind   int
	cpus   int        // for VMs
	memory farm.Bytes // for VMs
	held   int        // CPUs
	taken  farm.Bytes
	down   *Outage       // nil: it takes jobs
	jobs   map[int]int64 // that run there, and since when
}

func (p *place) free() int { return p.cpus - p.held }

// cell is the one that all hosts are in.
const cell = "all"

// site is hosts with the places that they are, or that are on them, and the fleet that chooses among those.
type site struct {
	fleet  *placement.Fleet
	places []*place
	first  []int   // place of each host, and of the one behind the last
	fixed  []fixed // by kind
}

// fixed is what a host has beside its places: of CPUs that VMs that stay have not.
type fixed struct{ installed, reserved, mix, beside int }

func (o Options) site() (s site, err error) {
	s.fleet = placement.NewFleet()
	s.fleet.SetCell(farm.Cell{Name: cell, Packing: farm.Pack})
	for kind, h := range o.Hosts {
		own := fixed{installed: h.Topology.Online.Len(), reserved: h.Reserve.CPUs.And(h.Topology.Online).Len()}
		on, count := h, 1
		if o.VMCPUs > 0 {
			if on, count, own.mix, own.beside, err = o.asVMs(h); err != nil {
				return s, err
			}
		}
		s.fixed = append(s.fixed, own)
		for range h.Count {
			s.first = append(s.first, len(s.places))
			for range count {
				s.add(kind, on)
			}
		}
	}
	s.first = append(s.first, len(s.places))
	return s, nil
}

// empty has one host of each kind.
func (o Options) empty() (site, error) {
	o.Hosts = slices.Clone(o.Hosts)
	for i := range o.Hosts {
		o.Hosts[i].Count = 1
	}
	return o.site()
}

func (s *site) add(kind int, on Hosts) {
	p := &place{id: strconv.Itoa(len(s.places)), kind: kind, cpus: on.forVMs(), memory: on.memory(),
		jobs: map[int]int64{}}
	s.places = append(s.places, p)
	s.fleet.Set(placement.Host{ID: p.id, Name: p.id, Cell: cell, Topology: on.Topology, Reserve: on.Reserve})
}

func (h Hosts) forVMs() int { return h.Topology.Online.Minus(h.Reserve.CPUs).Len() }

// memory is what VMs may have of it.
func (h Hosts) memory() farm.Bytes {
	var all farm.Bytes
	for _, n := range h.Topology.Nodes {
		all += n.Memory
	}
	return max(all, h.Reserve.Memory) - h.Reserve.Memory
}

// memoryStep is in what steps VMs that stay share their host's memory, or in pages that are larger.
const memoryStep = 256 * farm.MiB

// asVMs is one of the VMs with which a host is filled, as a host, and how many there are; the CPUs that none has, and
// those that are held beside theirs.
func (o Options) asVMs(h Hosts) (vm Hosts, count, mix, beside int, err error) {
	step := memoryStep
	for _, page := range o.Shape.Pages {
		step = max(step, page)
	}
	for count = h.forVMs() / o.VMCPUs; count > 0; count-- {
		for _, percent := range []farm.Bytes{100, 95, 90, 80} { // what nodes have apart does not always add up
			memory := h.memory() / 100 * percent / farm.Bytes(count) / step * step
			if held, ok := o.fill(h, memory, count); ok {
				return o.vm(h.Kind, memory), count, h.forVMs() - held, held - count*o.VMCPUs, nil
			}
		}
	}
	return vm, 0, 0, 0, demand(fmt.Sprintf("no VM of %s fits a host of kind %s", farm.Count(o.VMCPUs, "CPU"), h.Kind),
		"choose a smaller one")
}

// fill reports whether so many VMs fit an empty host, and how many CPUs they hold there.
func (o Options) fill(h Hosts, memory farm.Bytes, count int) (held int, ok bool) {
	f := placement.NewFleet()
	f.SetCell(farm.Cell{Name: cell})
	f.Set(placement.Host{ID: "0", Name: "0", Cell: cell, Topology: h.Topology, Reserve: h.Reserve})
	for i := range count {
		s := o.Shape
		s.CPUs, s.Memory = o.VMCPUs, memory
		p, err := f.Claim(placement.Request{VM: strconv.Itoa(i), Shape: s, Cells: []string{cell}})
		if err != nil {
			return 0, false
		}
		held += p.Plan.Held().Len()
	}
	return held, true
}

// vm is a VM that stays, as a host for jobs: of one node, each CPU a core.
func (o Options) vm(kind string, memory farm.Bytes) Hosts {
	all := farm.CPURange(0, o.VMCPUs)
	t := farm.Topology{Online: all, Nodes: []farm.Node{{CPUs: all, Memory: memory, Free: memory}},
		Sockets: []farm.Socket{{CPUs: all}}, L3: []farm.CPUSet{all}}
	for c := range o.VMCPUs {
		t.Cores = append(t.Cores, farm.Core{Threads: farm.NewCPUSet(c)})
	}
	return Hosts{Kind: kind, Count: 1, Topology: t}
}
