package verify_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/verify"
)

// asPlanned is what the kernel shows of a VM that runs just as planned, with the threads that every QEMU has beside.
func asPlanned(pid int, p farm.Plan, online farm.CPUSet) farm.Process {
	proc := farm.Process{PID: pid, Name: fmt.Sprintf("grange-%d", pid), UUID: fmt.Sprint(pid), Ours: true,
		Memory: farm.NodeMemory{Resident: map[int]farm.Bytes{}}}
	add := func(name string, vcpu int, cpus farm.CPUSet) {
		proc.Threads = append(proc.Threads,
			farm.Thread{ID: pid + len(proc.Threads), Name: name, VCPU: vcpu, Allowed: cpus, LastCPU: -1})
	}
	add("qemu-system-x86", farm.NoVCPU, p.Emulator)
	add("call_rcu", farm.NoVCPU, p.Emulator)
	add("IO iothread1", farm.NoVCPU, p.IOThread)
	add("worker", farm.NoVCPU, online)
	for i, cpus := range p.VCPUs {
		add(fmt.Sprintf("CPU %d/KVM", i), i, cpus)
	}
	for _, c := range p.Cells {
		proc.Memory.Resident[c.Node] += c.Memory
		bound := farm.BoundMemory{Nodes: farm.NewCPUSet(c.Node), Resident: map[int]farm.Bytes{c.Node: c.Memory}}
		proc.Memory.Bound = append(proc.Memory.Bound, bound)
	}
	return proc
}

// TestPlannedIsProven: on random hosts with random VMs of the planner's, what runs as planned raises no alarm; and one
// vCPU that is moved onto another VM's CPU does.
func TestPlannedIsProven(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		host := topology.Grid{Sockets: 1 + random.IntN(2), NodesPerSocket: 1 + random.IntN(2),
			CoresPerNode: 2 + random.IntN(6), Threads: 1 + random.IntN(2), NodeMemory: 64 * farm.GiB}.Topology()
		reserve := numa.Reserve{CPUs: farm.NewCPUSet(0)}
		if random.IntN(2) == 0 {
			reserve.Shared = map[int]numa.SharedRoom{0: {CPUs: farm.NewCPUSet(1), VCPUs: 8, Memory: 32 * farm.GiB}}
		}
		var plans []farm.Plan
		byID := map[string]farm.Plan{}
		var procs []farm.Process
		for range 6 {
			r := numa.Request{VCPUs: 1 + random.IntN(6), Memory: farm.GiB, Allowed: host.Online, Service: reserve.CPUs}
			r.Threads = []farm.ThreadPolicy{farm.PreferSiblings, farm.PreferSiblings, farm.IsolateCores}[random.IntN(3)]
			if len(reserve.Shared) > 0 && random.IntN(3) == 0 {
				r.CPU, r.Threads = farm.Shared, farm.PreferSiblings
			}
			p, err := numa.Plan(numa.NewRoom(host, reserve, plans), r)
			if err != nil {
				continue
			}
			proc := asPlanned(1000*(len(procs)+1), p, host.Online)
			plans, procs, byID[proc.UUID] = append(plans, p), append(procs, proc), p
		}
		report := verify.Verify(farm.HostFacts{Topology: host}, procs, byID)
		if report.Worst() > tuning.Advice {
			t.Fatalf("seed %d: %s", seed, describe(report))
		}
		moveOne(t, seed, host, procs, byID)
	}
}

func moveOne(t *testing.T, seed uint64, host farm.Topology, procs []farm.Process, plans map[string]farm.Plan) {
	if len(procs) < 2 || !plans[procs[0].UUID].Floating.Empty() || !plans[procs[1].UUID].Floating.Empty() {
		return
	}
	first := &procs[0].Threads[4]
	first.Allowed = plans[procs[1].UUID].VCPUs[0]
	report := verify.Verify(farm.HostFacts{Topology: host}, procs, plans)
	var stray, crowded bool
	for _, p := range report.Problems {
		stray = stray || p.Kind == verify.Stray && p.VM == procs[0].Name
		crowded = crowded || p.Kind == verify.Crowded && len(p.Others) == 1
	}
	if !stray || !crowded {
		t.Fatalf("seed %d: a vCPU on another VM's CPU: stray %v, crowded %v\n%s", seed, stray, crowded,
			describe(report))
	}
}
