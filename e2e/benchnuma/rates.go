package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// rate is how much CPU time one call takes, in microseconds, over rounds. CPU time and not the clock's, so that a busy
// machine does not count; what the garbage collector takes does.
type rate struct {
	median, low, high float64 // quartiles
	allocs            float64 // a call
}

func (r rate) perSecond() float64 { return 1e6 / r.median }

// question is a room and what is asked of it.
type question struct {
	room numa.Room
	req  numa.Request
}

// variants are the questions of one measurement. They differ in which CPUs are taken and in memory, so that no answer
// can be remembered.
const variants = 64

// measure times planning of the questions in rounds; each must fit, or each must be refused.
func measure(rounds int, questions []question, fits bool) (rate, error) {
	for _, q := range questions {
		if _, err := numa.Plan(q.room, q.req); (err == nil) != fits {
			return rate{}, fmt.Errorf("%d vCPUs: %v", q.req.VCPUs, err)
		}
	}
	var times []float64
	var before, after runtime.MemStats
	const again = 32
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range rounds {
		start, err := cpuTime()
		if err != nil {
			return rate{}, err
		}
		for range again {
			for i := range questions {
				_, _ = numa.Plan(questions[i].room, questions[i].req)
			}
		}
		end, err := cpuTime()
		if err != nil {
			return rate{}, err
		}
		times = append(times, float64((end-start).Nanoseconds())/1e3/float64(again*len(questions)))
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	return rate{
		median: times[len(times)/2], low: times[len(times)/4], high: times[len(times)*3/4],
		allocs: float64(after.Mallocs-before.Mallocs) / float64(rounds*again*len(questions)),
	}, nil
}

// cpuTime is what this process has taken so far.
func cpuTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// fitQuestions ask half-full hosts for 8 vCPUs.
func fitQuestions(host farm.Topology) []question {
	r := rand.New(rand.NewPCG(8, uint64(host.Online.Len())))
	var out []question
	for i := range variants {
		out = append(out, question{halfFull(r, host), numa.Request{
			VCPUs: 8, Memory: farm.Bytes(8+i%9) * farm.GiB, Pages: []farm.Bytes{2 * farm.MiB}, Allowed: host.Online,
		}})
	}
	return out
}

// halfFull takes half of each node's threads, as VMs of even and odd sizes leave it: mostly whole cores, and a third as
// lone siblings of cores whose other thread is free.
func halfFull(r *rand.Rand, host farm.Topology) numa.Room {
	var plans []farm.Plan
	for _, n := range host.Nodes {
		var cores []farm.CPUSet
		for _, c := range host.Cores {
			if c.Node == n.ID {
				cores = append(cores, c.Threads)
			}
		}
		r.Shuffle(len(cores), func(i, j int) { cores[i], cores[j] = cores[j], cores[i] })
		take, lone := n.CPUs.Len()/2, n.CPUs.Len()/6
		var cpus []int
		for i, c := range cores {
			switch threads := c.List(); {
			case i < lone:
				cpus = append(cpus, threads[r.IntN(len(threads))])
			case len(cpus)+len(threads) <= take:
				cpus = append(cpus, threads...)
			case len(cpus) < take:
				cpus = append(cpus, threads[:take-len(cpus)]...)
			}
		}
		plans = append(plans, pinned(n.ID, cpus,
			n.Pages[0].Size*farm.Bytes(n.Pages[0].Total/4+r.IntN(n.Pages[0].Total/4))))
	}
	return numa.NewRoom(host, numa.Reserve{}, plans)
}

// pinned is a VM on one node.
func pinned(node int, cpus []int, memory farm.Bytes) farm.Plan {
	p := farm.Plan{Cells: []farm.GuestCell{{VCPUs: firstNumbers(len(cpus)), Memory: memory, Node: node,
		PageSize: 2 * farm.MiB}}}
	for _, cpu := range cpus {
		p.VCPUs = append(p.VCPUs, farm.NewCPUSet(cpu))
	}
	return p
}

func firstNumbers(n int) farm.CPUSet {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return farm.NewCPUSet(ids...)
}

// refuseQuestions ask hosts of 8 nodes for 8 cells, where one node or another is short of a few CPUs.
func refuseQuestions(host farm.Topology) []question {
	r := rand.New(rand.NewPCG(9, 9))
	var out []question
	for i := range variants {
		short := host.Nodes[i%len(host.Nodes)]
		cpus := short.CPUs.List()
		taken := cpus[:len(cpus)-15+r.IntN(8)] // at most 15 are left, and 16 are asked for
		room := numa.NewRoom(host, numa.Reserve{}, []farm.Plan{pinned(short.ID, taken, farm.GiB)})
		out = append(out, question{room, numa.Request{
			VCPUs: 128, Memory: farm.Bytes(128+8*(i%9)) * farm.GiB, Pages: []farm.Bytes{2 * farm.MiB},
			Allowed: host.Online, Cells: 8,
		}})
	}
	return out
}

// rates are the measured speeds.
type rates struct{ fit32, fit256, refuse rate }

func measureRates(rounds int) (rates, error) {
	var r rates
	var err error
	small, large := withHugePages(topologytest.CERN2630v3()), withHugePages(topologytest.EPYC256())
	if r.fit32, err = measure(rounds, fitQuestions(small), true); err != nil {
		return r, fmt.Errorf("8 vCPUs on 32 threads: %w", err)
	}
	if r.fit256, err = measure(rounds, fitQuestions(large), true); err != nil {
		return r, fmt.Errorf("8 vCPUs on 256 threads: %w", err)
	}
	if r.refuse, err = measure(rounds, refuseQuestions(large), false); err != nil {
		return r, fmt.Errorf("8 cells on 8 nodes: %w", err)
	}
	return r, nil
}
