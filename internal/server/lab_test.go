package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placer"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
	"github.com/grange-project/grange/internal/topology"
)

// lab is a server on a database of its own, with a small farm: cells east (default) and west (of project atlas),
// projects alice and atlas, users ann (member of alice), otto (operator of atlas), site (admin everywhere) and eve
// (nobody).
type lab struct {
	*Server
	t       *testing.T
	brokers map[string]batch.System

	downloaded atomic.Int64 // bytes from the sources of images

	mu  sync.Mutex
	now time.Time
}

var (
	ann  = farm.Identity{User: "ann", Means: "token", Source: "t1"}
	otto = farm.Identity{User: "otto", Means: "token", Source: "t2"}
	site = farm.Identity{User: "site", Means: "certificate", Source: "CN=Site"}
	eve  = farm.Identity{User: "eve", Means: "token", Source: "t3"}
	root = farm.Identity{Root: true, Means: "socket", Source: "0"}
)

func newLab(t *testing.T) *lab { return newLabOn(t, filepath.Join(t.TempDir(), "farm.db")) }

func newLabOn(t *testing.T, url string) *lab {
	t.Helper()
	l := &lab{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), brokers: map[string]batch.System{}}
	st, err := store.OpenWith(t.Context(), url, store.Options{Clock: l.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	l.Server = New(Options{Store: st, Log: slog.New(slog.DiscardHandler), Now: l.clock,
		URL: "https://server.example.org", CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), Broker: l.broker,
		ImageDir:  filepath.Join(t.TempDir(), "images"),
		ImagePace: func(_ context.Context, n int) error { l.downloaded.Add(int64(n)); return nil },
		Brokers:   []string{"slurm"},
		FileSystems: []farm.FileSystem{
			{Name: "work", Match: farm.FileSystemMatch{Source: "server:/work*"}, Budget: 1, Note: "call 4711"}}})
	l.update(func(tx *store.Tx) error {
		pool := farm.AddressPool{First: netip.MustParseAddr("10.0.0.10"),
			Last: netip.MustParseAddr("10.0.0.12"), Bits: 24}
		return errors.Join(
			tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutCell(farm.Cell{Name: "west", Projects: []string{"atlas"}, Services: true}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "alice", Quota: farm.Quota{VMs: 5, CPUs: 20}}),
			tx.PutProject(farm.Project{Name: "atlas", Images: []string{"atlas-*", "micro"}, Shapes: []string{"small"},
				Networks: []string{"inner"}, MaxAge: 240 * time.Hour}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 2, Memory: 2 * farm.GiB, Network: farm.NetworkNone}),
			tx.PutShape(farm.Shape{Name: "large", CPUs: 8, Memory: 16 * farm.GiB, Scratch: 10 * farm.GiB,
				Network: farm.NetworkNone, MaxGuest: farm.GuestTopology{Sockets: 2}}),
			tx.PutNetwork(farm.FleetNetwork{Name: "lan", Bridge: "br0", Addresses: []farm.AddressPool{pool},
				Domain: "example.org"}),
			tx.PutNetwork(farm.FleetNetwork{Name: "inner", Bridge: "br1", Closed: true,
				Names: []string{"wn-1", "wn-2"}}),
			tx.PutUser(farm.User{Name: "site"}),
			tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleMember, Project: "alice"}),
			tx.PutGrant(farm.Grant{User: "otto", Role: farm.RoleOperator, Project: "atlas"}),
			tx.PutGrant(farm.Grant{User: "site", Role: farm.RoleAdmin}),
		)
	})
	return l
}

func (l *lab) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *lab) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

func (l *lab) broker(c farm.Cell) (batch.System, error) {
	if b := l.brokers[c.Name]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("cell %s has no broker", c.Name)
}

func (l *lab) update(do func(*store.Tx) error) {
	l.t.Helper()
	if _, err := l.store.Update(context.Background(), do); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) view(do func(*store.Tx) error) {
	l.t.Helper()
	if err := l.store.View(context.Background(), do); err != nil {
		l.t.Fatal(err)
	}
}

// host enrols a host that was heard of just now.
func (l *lab) host(name, cell string) farm.Host {
	l.t.Helper()
	h := farm.Host{ID: "id-" + name, Name: name, Cell: cell, Enrolled: l.clock(), Seen: l.clock(),
		Facts: farm.Facts{Topology: topology.Grid{Sockets: 2, CoresPerNode: 8,
			NodeMemory: 32 * farm.GiB}.Topology(), Images: []string{"micro"}, ScratchFree: farm.TiB}}
	l.update(func(tx *store.Tx) error { return tx.InsertHost(h) })
	return h
}

// machine enrols a host of 32 threads on two nodes of 32 GiB, with 100 GiB of disk.
func (l *lab) machine(name, cell string) farm.Host {
	l.t.Helper()
	h := storetest.Machine(name, cell, l.clock())
	l.update(func(tx *store.Tx) error { return tx.InsertHost(h) })
	return h
}

// placing is a placer that works step by step.
func (l *lab) placing() *placer.Placer { l.t.Helper(); return l.mirror.Lead(l.epoch()) }

// settle steps until nothing is left to do.
func (l *lab) settle(p *placer.Placer) {
	l.t.Helper()
	for range 100 {
		before := l.revision()
		busy, err := p.Step(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		if !busy && l.revision() == before {
			return
		}
	}
	l.t.Fatal("the placer does not come to rest")
}

// seen has a host be heard of now.
func (l *lab) seen(h farm.Host) {
	l.update(func(tx *store.Tx) error { return tx.SetHostSeen(h.ID, l.clock(), 0) })
}

// put gives a VM its place, as the placer does.
func (l *lab) put(vm farm.VM, h farm.Host) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		now, err := tx.VM(vm.ID)
		if err != nil {
			return err
		}
		now.Host, now.Cell = h.ID, h.Cell
		return tx.SetVMPlace(now)
	})
}

// says has a VM's host report a state, with all counters carried out.
func (l *lab) says(id string, state farm.VMState) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		vm, err := tx.VM(id)
		if err != nil {
			return err
		}
		return tx.SetVMObserved(id, storetest.Says(vm, state, l.clock()))
	})
}

// create makes VMs that must be made.
func (l *lab) create(who farm.Identity, r CreateVM) []VMView {
	l.t.Helper()
	made, err := l.VMs.Create(l.t.Context(), who, r)
	if err != nil {
		l.t.Fatal(err)
	}
	return made.VMs
}

// running is a VM that runs on a host.
func (l *lab) running(who farm.Identity, r CreateVM, h farm.Host) VMView {
	l.t.Helper()
	v := l.create(who, r)[0]
	l.put(v.VM, h)
	l.says(v.ID, farm.VMRunning)
	return l.get(v.ID)
}

func (l *lab) get(id string) VMView {
	l.t.Helper()
	v, err := l.VMs.Get(l.t.Context(), root, id)
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

func (l *lab) row(id string) (vm farm.VM, there bool) {
	l.t.Helper()
	l.view(func(tx *store.Tx) (err error) {
		vm, err = tx.VM(id)
		if action.Missing(err) {
			return nil
		}
		there = err == nil
		return err
	})
	return vm, there
}

func (l *lab) must(vm string) farm.VM {
	l.t.Helper()
	v, ok := l.row(vm)
	if !ok {
		l.t.Fatalf("VM %s is gone", vm)
	}
	return v
}

// code is the code of an error; "" of none.
func code(err error) farm.Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*farm.Error](err); ok {
		return e.Code
	}
	return farm.Code("not a farm.Error: " + err.Error())
}

// epoch is the lease's, taken by the test.
func (l *lab) epoch() int64 {
	l.t.Helper()
	epoch, ok, err := l.store.Lead(l.t.Context(), "test", time.Minute)
	if err != nil || !ok {
		l.t.Fatal(ok, err)
	}
	return epoch
}
