package main

import (
	"context"
	stderrors "errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func errors(all ...error) error { return stderrors.Join(all...) }

// bench is one fleet with its server.
type bench struct {
	path  string
	store *store.Store   // this process writes what people and hosts do
	farm  *server.Server // that is measured; nil where the database is made
	rand  *rand.Rand
	hosts []farm.Host
	rooms []numa.Room // half full, for the peer
	vms   []string    // that have their place
	next  int
}

const (
	cellName = "farm"
	projects = 8
)

// kinds of hosts, dual-socket: 32, 32, 64, 128 and 256 threads. Half of the memory of each node is in pages of 2 MiB.
func kinds() []farm.Topology {
	middle := topology.Grid{Sockets: 2, CoresPerNode: 16, Threads: 2, NodeMemory: 128 * farm.GiB}.Topology()
	large := topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerNode: 16, Threads: 2,
		NodeMemory: 128 * farm.GiB}.Topology()
	all := []farm.Topology{topologytest.CERN2650v2(), topologytest.CERN2630v3(), middle, large, topologytest.EPYC256()}
	for i, t := range all {
		all[i] = topologytest.WithPages(t, 2*farm.MiB, int(t.Nodes[0].Memory/2/(2*farm.MiB)))
	}
	return all
}

// draw is one VM of the mix: 1 to 32 vCPUs, most of them 4 or 8, with 1 to 2 GiB each; every third in huge pages, some
// on cores of their own.
func (b *bench) draw() farm.Shape {
	cpus := []int{1, 2, 4, 4, 4, 8, 8, 8, 16, 32}[b.rand.IntN(10)]
	s := farm.Shape{CPUs: cpus, Memory: farm.Bytes(cpus*(2+b.rand.IntN(3))) * 512 * farm.MiB, Network: farm.NetworkNone}
	switch b.rand.IntN(6) {
	case 0, 1:
		s.Pages = []farm.Bytes{2 * farm.MiB, 0}
	case 2:
		s.Threads = farm.RequireSiblings
	}
	if cpus == 32 && b.rand.IntN(2) == 0 {
		s.Cells = 2
	}
	return s
}

func (b *bench) vm() farm.VM {
	b.next++
	name := "vm-" + strconv.Itoa(b.next)
	return farm.VM{ID: fmt.Sprintf("%08x-aaaa-4aaa-8aaa-%012x", b.next*2654435761&0xffffffff, b.next), Name: name,
		Project: "p" + strconv.Itoa(b.rand.IntN(projects)), Owner: "ann", Image: "micro", Shape: b.draw(),
		Created: time.Now().UTC(), Wanted: farm.Wanted{Power: farm.PowerOn},
		Keys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJq3Yh3mGQ6Vb7dM4m3oYl8c0m8hQqg5v1y2m3n4o5p6 " +
			"ann@example.org"}}
}

func newBench(path string, seed uint64) *bench {
	return &bench{path: path, rand: rand.New(rand.NewPCG(seed, 5))}
}

// begin makes the database with hosts that are half full.
func begin(ctx context.Context, dir string, hosts int) (*bench, error) {
	b := newBench(filepath.Join(dir, "farm.db"), uint64(hosts))
	var err error
	if b.store, err = store.Open(ctx, b.path); err != nil {
		return nil, err
	}
	fleet := placement.NewFleet()
	cell := farm.Cell{Name: cellName, Broker: farm.BrokerGrange, Default: true, Packing: farm.Pack, Overcommit: 1}
	fleet.SetCell(cell)
	all, threads := kinds(), 0
	for i := range hosts {
		t := all[i%len(all)]
		threads += t.Online.Len()
		name := "h" + strconv.Itoa(i)
		b.hosts = append(b.hosts, farm.Host{ID: "id-" + name, Name: name, Cell: cellName, Seen: time.Now(),
			Facts: farm.Facts{Topology: t, Kind: "kind-" + strconv.Itoa(i%len(all)), Accelerator: "kvm",
				Images: []string{"micro"}, ScratchFree: farm.TiB, Reserve: farm.HostReserve{Memory: farm.GiB}}})
		fleet.Set(placement.Host{ID: "id-" + name, Name: name, Cell: cellName, Topology: t, Images: []string{"micro"},
			Reserve: farm.HostReserve{Memory: farm.GiB}, Scratch: farm.TiB})
	}
	vms, err := b.fill(fleet, threads/2)
	if err != nil {
		return nil, err
	}
	b.readRooms(vms)
	return b, errors(b.write(ctx, cell, vms))
}

// fill places VMs until they have so many threads.
func (b *bench) fill(fleet *placement.Fleet, threads int) (vms []farm.VM, err error) {
	for threads > 0 {
		vm := b.vm()
		p, err := fleet.Claim(placement.Request{VM: vm.ID, Project: vm.Project, Shape: vm.Shape,
			Cells: []string{cellName}, Image: vm.Image})
		if err != nil {
			return nil, err
		}
		vm.Host, vm.Cell, vm.Plan = p.Host, p.Cell, p.Plan
		vms, b.vms = append(vms, vm), append(b.vms, vm.ID)
		threads -= p.Plan.Held().Len()
	}
	return vms, nil
}

func (b *bench) readRooms(vms []farm.VM) {
	plans := map[string][]farm.Plan{}
	for _, vm := range vms {
		plans[vm.Host] = append(plans[vm.Host], vm.Plan)
	}
	like := map[string]numa.Room{}
	for _, h := range b.hosts {
		r := numa.NewRoomLike(like[h.Facts.Kind], h.Facts.Topology, numa.Reserve{Memory: farm.GiB}, plans[h.ID])
		like[h.Facts.Kind] = r
		b.rooms = append(b.rooms, r)
	}
}

func (b *bench) write(ctx context.Context, cell farm.Cell, vms []farm.VM) error {
	_, err := b.store.Update(ctx, func(t *store.Tx) error {
		err := t.PutCell(cell)
		for i := range projects {
			err = errors(err, t.PutProject(farm.Project{Name: "p" + strconv.Itoa(i)}))
		}
		return err
	})
	for some := range slices.Chunk(b.hosts, 1000) {
		_, e := b.store.Update(ctx, func(t *store.Tx) error {
			for _, h := range some {
				if err := t.InsertHost(h); err != nil {
					return err
				}
			}
			return nil
		})
		err = errors(err, e)
	}
	for some := range slices.Chunk(vms, 5000) {
		_, e := b.store.Update(ctx, func(t *store.Tx) error {
			for _, vm := range some {
				if err := t.InsertVM(vm); err != nil {
					return err
				}
			}
			return nil
		})
		err = errors(err, e)
	}
	b.hosts = nil
	return err
}

// syncTimes are the median and the 99th percentile of fsync there, in ms: what SQLite calls for each commit.
func syncTimes(dir string) (p50, p99 float64, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var times []time.Duration
	block := make([]byte, 4096)
	for i := range 200 {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i)*4096); err != nil {
			return 0, 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100]), nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// residentMB is what of this process is in memory.
func residentMB() (float64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read /proc/self/statm: %q", text)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages) * float64(os.Getpagesize()) / 1e6, err
}
