package store

import (
	"errors"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// one is a VM of project p that holds one of each.
func one(id string) farm.VM {
	return farm.VM{ID: id, Name: id, Project: "p", Shape: farm.Shape{CPUs: 1, Memory: 1, Scratch: 1}}
}

func some(n int) farm.Quota {
	return farm.Quota{VMs: n, CPUs: n, Memory: farm.Bytes(n), Scratch: farm.Bytes(n)}
}

func usedNow(t *testing.T, s *Store) (q farm.Quota) {
	t.Helper()
	err := s.View(t.Context(), func(tx *Tx) (err error) {
		q, err = tx.Used("p")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestUsedTogether: in a group each sees what those before it hold, and nothing of what was undone.
func TestUsedTogether(t *testing.T) {
	s := inside(t)
	var saw []farm.Quota
	look := func(tx *Tx) error {
		q, err := tx.Used("p")
		saw = append(saw, q)
		return err
	}
	undo := errors.New("undo")
	group := writeTogether(t, s,
		func(tx *Tx) error { return errors.Join(tx.InsertVM(one("a")), tx.InsertVM(one("b")), look(tx)) },
		func(tx *Tx) error { return errors.Join(tx.InsertVM(one("c")), look(tx), undo) },
		func(tx *Tx) error {
			return errors.Join(tx.DeleteVM("a"), tx.InsertVM(one("d")), tx.InsertVM(one("e")), look(tx))
		},
		look)
	for n, u := range group {
		if (u.err != nil) != (n == 1) {
			t.Errorf("update %d: %v", n, u.err)
		}
	}
	for n, want := range []farm.Quota{some(2), some(3), some(3), some(3)} {
		if saw[n] != want {
			t.Errorf("update %d saw %+v, not %+v", n, saw[n], want)
		}
	}
	if got := usedNow(t, s); got != some(3) {
		t.Errorf("%+v are held then", got)
	}
}

// TestUsedIsRecounted by whoever takes the lead: what wrote before may not have counted.
func TestUsedIsRecounted(t *testing.T) {
	s := inside(t)
	if _, err := s.Update(t.Context(), func(tx *Tx) error { return tx.InsertVM(one("a")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec("UPDATE used SET vms = 7"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Lead(t.Context(), "me", time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := usedNow(t, s); got != some(1) {
		t.Errorf("%+v", got)
	}
}
