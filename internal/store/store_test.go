package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func TestQuick(t *testing.T) {
	ctx := context.Background()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rev, err := s.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutCell(farm.Cell{Name: "a"}); err != nil {
			return err
		}
		if err := tx.InsertHost(farm.Host{ID: "h1", Name: "h"}); err != nil {
			return err
		}
		if err := tx.PutUser(farm.User{Name: "ann", Subjects: []string{"CN=ann"}}); err != nil {
			return err
		}
		if err := tx.Audit(farm.Entry{Who: "ann"}); err != nil {
			return err
		}
		for _, n := range []string{"b", "a"} {
			if err := tx.InsertVM(farm.VM{ID: n, Project: "p", Name: n, Shape: farm.Shape{CPUs: 2}}); err != nil {
				return err
			}
		}
		return tx.SetVMPlace(farm.VM{ID: "a", Host: "h1"})
	})
	if err != nil || rev != 1 {
		t.Fatal(rev, err)
	}
	ch, up, err := s.Changes(ctx, 0, 100)
	t.Log(ch, up, err)
	s.View(ctx, func(tx *store.Tx) error {
		v, err := tx.VMs(store.VMFilter{After: "p/a", Limit: 3})
		t.Log(v, err)
		u, err := tx.UserOfSubject("CN=ann")
		t.Log(u, err)
		e, err := tx.Entries("", "", 0, 10)
		t.Log(e, err)
		q, err := tx.Used("p")
		t.Log(q, err)
		return nil
	})
	_, err = s.Update(ctx, func(tx *store.Tx) error { return tx.InsertVM(farm.VM{ID: "z", Project: "p", Name: "b"}) })
	t.Log(err)
	t.Log(s.Lead(ctx, "me", time.Second))
	t.Log(s.Lead(ctx, "you", time.Second))
	rev, err = s.Update(ctx, func(tx *store.Tx) error { return tx.PutCell(farm.Cell{Name: "a"}) })
	t.Log(rev, err)
	t.Log(s.Wait(ctx, 0))
}
