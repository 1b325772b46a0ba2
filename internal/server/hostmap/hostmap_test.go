package hostmap

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// TestFollows: the map is what the store has, after each change of a host and of what is on it.
func TestFollows(t *testing.T) {
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	m := New(st, func() time.Time { return now })
	facts := farm.Facts{
		Topology: farm.Topology{Online: farm.CPURange(0, 8), Nodes: []farm.Node{{Memory: 8 * farm.GiB}}},
		Reserve:  farm.HostReserve{CPUs: farm.NewCPUSet(0), Memory: farm.GiB}}
	vm := farm.VM{ID: "v1", Name: "a", Project: "p", Host: "1", Shape: farm.Shape{CPUs: 2, Memory: farm.GiB}}
	for i, step := range []struct {
		do   func(*store.Tx) error
		want string
	}{
		{func(tx *store.Tx) error {
			h := farm.Host{ID: "1", Name: "b", Cell: "x", Facts: facts}
			o := farm.Host{ID: "2", Name: "a", Cell: "x"}
			if err := tx.InsertHost(h); err != nil {
				return err
			}
			return tx.InsertHost(o)
		}, "a 0/0 0 b 1/8 0 "},
		{func(tx *store.Tx) error { return tx.InsertVM(vm) }, "a 0/0 0 b 3/8 1 "},
		{func(tx *store.Tx) error {
			moved := vm
			moved.Host = "2"
			return tx.SetVMPlace(moved)
		}, "a 2/0 1 b 1/8 0 "},
		{func(tx *store.Tx) error { return tx.SetHostFacts("2", facts) }, "a 3/8 1 b 1/8 0 "},
		{func(tx *store.Tx) error { return tx.DeleteVM("v1") }, "a 1/8 0 b 1/8 0 "},
		{func(tx *store.Tx) error { return tx.DeleteHost("1") }, "a 1/8 0 "},
	} {
		if _, err := st.Update(t.Context(), step.do); err != nil {
			t.Fatal(err)
		}
		all, err := m.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, h := range all {
			got += fmt.Sprintf("%s %d/%d %d ", h.Name, h.HeldCPUs+h.Used.CPUs, h.CPUs, h.Used.VMs)
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if _, err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.SetHostSeen("2", now, 0) }); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * seenAge)
	if all, err := m.All(t.Context()); err != nil || len(all) != 1 || all[0].Seen.IsZero() {
		t.Errorf("nothing is known of when a host was seen: %+v, %v", all, err)
	}
}
