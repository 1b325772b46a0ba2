package serverlab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
)

// kinds are the hardware of the fleet, as sites have it: some generations of two makers.
var kinds = []struct {
	name, cpu string
	hardware  sim.Hardware
}{
	{"amd-epyc-7302-2s", "AMD EPYC 7302 16-Core", sim.Hardware{Sockets: 2, Cores: 16, Memory: 256 * farm.GiB}},
	{"amd-epyc-9654-2s", "AMD EPYC 9654 96-Core", sim.Hardware{Sockets: 2, Cores: 96, Memory: 1536 * farm.GiB}},
	{"intel-xeon-6326-2s", "Intel Xeon Silver 6326", sim.Hardware{Sockets: 2, Cores: 16, Memory: 384 * farm.GiB}},
	{"intel-xeon-4216-1s", "Intel Xeon Silver 4216", sim.Hardware{Sockets: 1, Cores: 16, Memory: 192 * farm.GiB}},
}

// cells are where the hosts are that are rows alone, and how many of a thousand.
var cells = []struct {
	cell     farm.Cell
	thousand int
}{
	{farm.Cell{Name: "analysis", Projects: []string{"atlas"}}, 120},
	{farm.Cell{Name: "batch-east", Projects: []string{"atlas"}}, 380},
	{farm.Cell{Name: "batch-west", Projects: []string{"atlas"}}, 350},
	{farm.Cell{Name: "services", Projects: []string{"core"}, Services: true}, 150},
}

// Fill writes a fleet of so many hosts, and VMs on some of them. They are as if their agents had just reported: what a
// page or a scrape costs is the same, and thousands of agents beside it would be what is measured.
func Fill(ctx context.Context, path string, hosts int) error {
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Update(ctx, func(t *store.Tx) error {
		for _, c := range cells {
			if err := t.PutCell(c.cell.WithDefaults()); err != nil {
				return err
			}
		}
		for _, name := range []string{"atlas", "core"} {
			if err := t.PutProject(farm.Project{Name: name}); err != nil {
				return err
			}
		}
		return putImages(t)
	})
	if err != nil {
		return err
	}
	rows := make([]farm.Host, hosts)
	dice := rand.New(rand.NewPCG(1, 2))
	for n := range rows {
		rows[n] = hostRow(n, hosts, dice)
	}
	for some := range slices.Chunk(rows, 1000) {
		_, err := db.Update(ctx, func(t *store.Tx) error {
			for _, h := range some {
				if err := t.InsertHost(h); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	_, err = db.Update(ctx, func(t *store.Tx) error {
		for n := range min(40, hosts) {
			if err := placeVMs(t, rows[n], n, dice); err != nil {
				return err
			}
		}
		return errors.Join(putJobs(t, rows), putActiveJobs(t, rows), putDrift(t, rows))
	})
	return err
}

// putImages fills the catalogue: a name that was moved once.
func putImages(t *store.Tx) error {
	name := farm.ImageName{Name: "debian-13"}
	for i, digit := range []string{"a", "b"} {
		made := time.Now().Add(time.Duration(i-9) * 24 * time.Hour)
		image := farm.FleetImage{Digest: "sha256:" + strings.Repeat(digit, 64), Kind: "disk", Format: "qcow2",
			Size: 310 * farm.MiB, VirtualSize: 3 * farm.GiB, OS: "Debian 13", MinMemory: 512 * farm.MiB, By: "otto",
			Source: "https://images.example.org/debian-13.qcow2", Verdict: "SHA256SUMS, signed by the distribution",
			State: farm.ImageActive, Created: made}
		name.Move(image.Digest, "otto", made)
		if err := store.ImagesOf(t).Put(image); err != nil {
			return err
		}
	}
	return store.ImagesOf(t).PutName(name)
}

func hostRow(n, of int, dice *rand.Rand) farm.Host {
	at, cell := n*1000/max(of, 1), ""
	for _, c := range cells {
		if cell = c.cell.Name; at < c.thousand {
			break
		}
		at -= c.thousand
	}
	kind := kinds[(n/97)%len(kinds)]
	now := time.Now().UTC()
	h := farm.Host{ID: api.NewID(), Name: fmt.Sprintf("wn-%05d", n+1), Cell: cell, MachineID: fmt.Sprint("m", n),
		Enrolled: now.Add(-time.Duration(dice.IntN(9000)) * time.Hour), Expires: now.Add(700 * time.Hour), Seen: now}
	topology := kind.hardware.Topology()
	topology.CPU.Name = kind.cpu
	for i := range topology.Nodes {
		node := &topology.Nodes[i]
		node.Pages = []farm.HugePages{{Size: farm.GiB, Total: int(node.Memory/farm.GiB) * 3 / 4,
			Free: dice.IntN(int(node.Memory / farm.GiB / 2))}}
		node.Free = node.Memory / 8
	}
	h.Facts = farm.Facts{Version: "0.9.0", Capability: 1, Accelerator: "kvm", Kind: kind.name, Topology: topology,
		Reserve: farm.HostReserve{Memory: 2 * farm.GiB}, Images: []string{"micro"}, Networks: []string{"br0"},
		ScratchFree: farm.TiB}
	h.Facts.Audited, h.Facts.Findings = findingsOf(n)
	if n >= 40 {
		h.Facts.Taken = taken(topology, dice)
	}
	switch roll := dice.IntN(1000); {
	case roll < 6:
		h.Seen = now.Add(-time.Duration(2+dice.IntN(50)) * time.Hour)
	case roll < 20:
		h.Closed, h.Reason = true, "memory errors, ticket 4711"
	case roll < 50:
		h.Drain = farm.Drain{Since: now.Add(-time.Hour), Deadline: now.Add(20 * time.Hour), Reason: "new kernel",
			By: "otto"}
	case roll < 70:
		h.Facts.Short = []string{"disk: 3G of 20G are free"}
	}
	return h
}

// taken are places of jobs, on so much of a host as the dice say.
func taken(t farm.Topology, dice *rand.Rand) []farm.Plan {
	all := len(t.Cores)
	var plans []farm.Plan
	for used := 0; ; {
		cores := 1 << dice.IntN(4)
		if used += cores; used > all || dice.IntN(12) == 0 {
			return plans
		}
		plans = append(plans, planOn(t, used-cores, cores, 1))
	}
}

// planOn is a VM on whole cores, with its memory on the node of the first.
func planOn(t farm.Topology, first, cores int, perCPU farm.Bytes) farm.Plan {
	var p farm.Plan
	for _, c := range t.Cores[first : first+cores] {
		for _, cpu := range c.Threads.List() {
			p.VCPUs = append(p.VCPUs, farm.NewCPUSet(cpu))
		}
	}
	p.Guest = farm.GuestTopology{Sockets: 1, Cores: cores, Threads: 2}
	p.Cells = []farm.GuestCell{{VCPUs: farm.CPURange(0, 2*cores), Memory: perCPU * farm.GiB * farm.Bytes(2*cores),
		Node: t.Cores[first].Node, PageSize: farm.GiB}}
	return p
}

// placeVMs puts VMs of some people on a host.
func placeVMs(t *store.Tx, h farm.Host, n int, dice *rand.Rand) error {
	used := 0
	for i := range 6 {
		cores := 1 << dice.IntN(3)
		if used += cores; used > len(h.Facts.Topology.Cores) {
			return nil
		}
		plan := planOn(h.Facts.Topology, used-cores, cores, 4)
		created := h.Seen.Add(-time.Duration(1+dice.IntN(2000)) * time.Hour)
		name := fmt.Sprintf("%s-%d-%d", []string{"web", "squid", "ce", "build"}[i%4], n, i)
		vm := farm.VM{ID: api.NewID(), Name: name,
			Project: "atlas", Owner: []string{"ann", "bob", "cleo"}[i%3], Image: "debian-13", Host: h.ID, Cell: h.Cell,
			Shape: farm.Shape{Name: "large", CPUs: 2 * cores, Memory: plan.Memory(), Network: farm.NetworkNone},
			Plan:  plan, Created: created, Wanted: farm.Wanted{Power: farm.PowerOn},
			Observed: farm.Observed{State: farm.VMRunning, Since: created, Ready: true, Plan: plan}}
		switch dice.IntN(14) {
		case 0:
			vm.Observed.State, vm.Observed.Reason = farm.VMFailed, "the guest did not come up within 5 minutes"
		case 1:
			vm.Wanted.Power, vm.Observed.State = farm.PowerOff, farm.VMStopped
		case 2:
			vm.Expires = time.Now().Add(13 * time.Hour)
		}
		if err := t.InsertVM(vm); err != nil {
			return err
		}
	}
	return nil
}
