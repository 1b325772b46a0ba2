package placer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
)

// silence is after how long a host of these tests is silent.
const silence = 90 * time.Second

// Shapes of these tests.
var (
	small = farm.Shape{Name: "small", CPUs: 2, Memory: 2 * farm.GiB, Network: farm.NetworkNone}
	large = farm.Shape{Name: "large", CPUs: 8, Memory: 16 * farm.GiB, Scratch: 10 * farm.GiB,
		Network: farm.NetworkNone}
)

func sized(cpus int, memory farm.Bytes) farm.Shape {
	return farm.Shape{CPUs: cpus, Memory: memory, Network: farm.NetworkNone}
}

// lab is a mirror of a database of its own, with cells east (default) and west (of project atlas).
type lab struct {
	*Mirror
	t      *testing.T
	store  *store.Store
	placer *Placer // that new VMs have their places from at once; nil: they have none
	made   int     // VMs

	clocked sync.Mutex
	now     time.Time
}

func newLab(t *testing.T) *lab {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{t: t, store: st, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	l.Mirror = l.mirror(func(_ string, seen time.Time) bool { return l.clock().Sub(seen) > silence })
	l.update(func(tx *store.Tx) error {
		return errors.Join(
			tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutCell(farm.Cell{Name: "west", Projects: []string{"atlas"}, Services: true}.WithDefaults()),
			tx.PutNetwork(farm.FleetNetwork{Name: "lan", Bridge: "br0"}),
			tx.PutNetwork(farm.FleetNetwork{Name: "inner", Bridge: "br1", Closed: true}),
		)
	})
	return l
}

// mirror returns one that has read nothing yet.
func (l *lab) mirror(silent func(string, time.Time) bool) *Mirror {
	return NewMirror(Options{Store: l.store, Log: slog.New(slog.DiscardHandler), Now: l.clock, Silent: silent,
		Reserve: func(_ context.Context, _ int64, vm farm.VM, cell string) error {
			return fmt.Errorf("VM %s for cell %s, which has no batch system", vm.ID, cell)
		}})
}

func (l *lab) clock() time.Time {
	l.clocked.Lock()
	defer l.clocked.Unlock()
	return l.now
}

func (l *lab) pass(d time.Duration) {
	l.clocked.Lock()
	defer l.clocked.Unlock()
	l.now = l.now.Add(d)
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

// epoch is the lease's, taken by the test.
func (l *lab) epoch() int64 {
	l.t.Helper()
	epoch, ok, err := l.store.Lead(l.t.Context(), "test", time.Minute)
	if err != nil || !ok {
		l.t.Fatal(ok, err)
	}
	return epoch
}

// machine enrols a host of 32 threads on two nodes of 32 GiB, with 100 GiB of disk.
func (l *lab) machine(name, cell string) farm.Host {
	l.t.Helper()
	h := storetest.Machine(name, cell, l.clock())
	l.update(func(tx *store.Tx) error { return tx.InsertHost(h) })
	return h
}

// seen has a host be heard of now.
func (l *lab) seen(host string) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error { return tx.SetHostSeen(host, l.clock(), 0) })
}

// placing is a placer that works step by step.
func (l *lab) placing() *Placer { l.t.Helper(); return l.Lead(l.epoch()) }

// placingNew is a placer that new VMs have their places from at once.
func (l *lab) placingNew() *Placer {
	l.t.Helper()
	l.placer = l.placing()
	l.settle(l.placer)
	return l.placer
}

// settle steps until nothing is left to do.
func (l *lab) settle(p *Placer) {
	l.t.Helper()
	for range 100 {
		before := p.revision
		busy, err := p.Step(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		if !busy && p.revision == before {
			return
		}
	}
	l.t.Fatal("the placer does not come to rest")
}

// create makes a VM of project alice and image micro, unless the draft says otherwise.
func (l *lab) create(draft farm.VM) farm.VM { l.t.Helper(); return l.createAll(1, draft)[0] }

// createAll makes VMs in one transaction.
func (l *lab) createAll(n int, draft farm.VM) []farm.VM {
	l.t.Helper()
	vms, err := l.request(n, draft)
	if err != nil {
		l.t.Fatal(err)
	}
	return vms
}

// request makes VMs, numbered where there are several, or none.
func (l *lab) request(n int, draft farm.VM) (vms []farm.VM, err error) {
	_, err = l.store.Update(l.t.Context(), func(tx *store.Tx) error {
		vms = nil
		for i := range n {
			vm := l.fill(draft)
			if n > 1 {
				vm.Name = fmt.Sprint(draft.Name, "-", i+1)
			}
			if l.placer != nil {
				l.placer.PlaceNew(tx, &vm)
			}
			if err := tx.InsertVM(vm); err != nil {
				return err
			}
			vms = append(vms, vm)
		}
		return nil
	})
	return vms, err
}

func (l *lab) fill(vm farm.VM) farm.VM {
	l.made++
	vm.ID, vm.Created, vm.Wanted.Power = fmt.Sprintf("vm-%03d", l.made), l.clock(), farm.PowerOn
	if vm.Project == "" {
		vm.Project = "alice"
	}
	if vm.Image == "" {
		vm.Image = "micro"
	}
	return vm
}

// want has people want something else of a VM.
func (l *lab) want(id string, do func(*farm.VM)) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		vm, err := tx.VM(id)
		if err != nil {
			return err
		}
		do(&vm)
		return tx.SetVM(vm)
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

// refuses has a VM's host refuse it.
func (l *lab) refuses(id string, reason farm.Code) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		return tx.SetVMObserved(id, farm.Observed{State: farm.VMFailed, Reason: string(reason) + ": says the test"})
	})
}

func (l *lab) row(id string) (vm farm.VM, there bool) {
	l.t.Helper()
	l.view(func(tx *store.Tx) (err error) {
		vm, err = tx.VM(id)
		if missing(err) {
			return nil
		}
		there = err == nil
		return err
	})
	return vm, there
}

func (l *lab) must(id string) farm.VM {
	l.t.Helper()
	vm, ok := l.row(id)
	if !ok {
		l.t.Fatalf("VM %s is gone", id)
	}
	return vm
}
