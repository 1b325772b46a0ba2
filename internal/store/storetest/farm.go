package storetest

import (
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// Machine returns a host for tests of who uses a store: 32 threads on two nodes of 32 GiB, with 100 GiB of disk.
func Machine(name, cell string, now time.Time) farm.Host {
	return farm.Host{ID: "id-" + name, Name: name, Cell: cell, Enrolled: now, Seen: now,
		Facts: farm.Facts{Topology: topologytest.CERN2650v2(), Kind: "cern", Accelerator: "kvm",
			Networks: []string{"br1"}, Images: []string{"micro"}, ScratchFree: 100 * farm.GiB}}
}

// Says returns what a VM's host reports of it in a state, with all counters carried out.
func Says(vm farm.VM, state farm.VMState, now time.Time) farm.Observed {
	return farm.Observed{State: state, Since: now, Boots: vm.Wanted.Boots, Builds: vm.Wanted.Builds}
}

// Disjoint fails the test unless VMs of one host share no thread.
func Disjoint(t testing.TB, db *store.Store) {
	t.Helper()
	err := db.View(t.Context(), func(tx *store.Tx) error {
		vms, err := tx.VMs(store.VMFilter{})
		for i, a := range vms {
			for _, b := range vms[:i] {
				if a.Host != "" && a.Host == b.Host && a.Plan.Held().Common(b.Plan.Held()) != 0 {
					t.Fatalf("VMs %s and %s have threads %v and %v of %s", a.Name, b.Name, a.Plan.Held(),
						b.Plan.Held(), a.Host)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
