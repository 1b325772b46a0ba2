package main

import (
	"math/rand/v2"
	"slices"
)

// mix is what the VMs of a trace are like.
type mix struct {
	kind     string
	vcpus    []int
	weights  []int // how often each number of vCPUs comes
	mibEach  []int // memory for a vCPU
	cellMiB  int   // memory that one cell holds
	cellCPUs int
}

// mixes have the statistics of the recorded traces.
var mixes = map[string]mix{
	"cern32_std": {"cern32", []int{4, 8, 16, 32}, []int{35, 35, 20, 10}, []int{2048, 3072}, 49152, 16},
	"cern32_mem": {"cern32", []int{4, 8, 16, 32}, []int{35, 35, 20, 10}, []int{2048, 3072, 4096, 6144}, 49152, 16},
	"cern32_odd": {"cern32", []int{1, 2, 3, 5, 6, 7, 10, 12, 24}, []int{16, 15, 15, 10, 10, 9, 10, 10, 5},
		[]int{2048, 3072}, 49152, 16},
	"epyc256_std": {"epyc256", []int{4, 8, 16, 32}, []int{35, 35, 20, 10}, []int{2048, 3072}, 98304, 32},
}

// generate makes a trace like the recorded ones: 110 % of all threads are asked for, then in ten rounds a fifth of the
// VMs leave and as many vCPUs come.
func generate(name string, hosts int, seed uint64) trace {
	m, r := mixes[name], rand.New(rand.NewPCG(seed, 1))
	t := trace{Name: name, Kind: m.kind, Hosts: hosts}
	threads := hosts * 32
	if m.kind == "epyc256" {
		threads = hosts * 256
	}
	alive := []event{}
	arrive := func() int {
		e := m.draw(r)
		e.ID = len(t.Events) + 1
		t.Events, alive = append(t.Events, e), append(alive, e)
		return e.VCPUs
	}
	for asked := 0; asked*10 < threads*11; {
		asked += arrive()
	}
	for range 10 {
		r.Shuffle(len(alive), func(i, j int) { alive[i], alive[j] = alive[j], alive[i] })
		gone := 0
		for _, e := range alive[:len(alive)/5] {
			t.Events = append(t.Events, event{Event: "depart", ID: e.ID})
			gone += e.VCPUs
		}
		alive = slices.Clone(alive[len(alive)/5:])
		for gone > 0 {
			gone -= arrive()
		}
	}
	return t
}

func (m mix) draw(r *rand.Rand) event {
	all := 0
	for _, w := range m.weights {
		all += w
	}
	n, i := r.IntN(all), 0
	for n >= m.weights[i] {
		n -= m.weights[i]
		i++
	}
	e := event{Event: "arrive", VCPUs: m.vcpus[i], PageKiB: 2048, Cells: 1}
	e.MemoryMiB = e.VCPUs * m.mibEach[r.IntN(len(m.mibEach))]
	for e.VCPUs > e.Cells*m.cellCPUs || e.MemoryMiB > e.Cells*m.cellMiB {
		e.Cells *= 2
	}
	return e
}
