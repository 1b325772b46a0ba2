package storetest

import (
	"time"

	"github.com/grange-project/grange/internal/store"
)

// stays: it is known where a VM is and was, from when to when, whose it was, and how large it was there at most.
func stays(s *suite) {
	now := noon
	pass := func() time.Time { now = now.Add(time.Hour); return now }
	db := s.open(s.fresh(s.T), store.Options{Clock: func() time.Time { return now }})
	v := aVM(1)
	v.Host, v.Resize, v.Shape.CPUs = "h1", nil, 2
	s.update(db, func(tx *store.Tx) error { return tx.InsertVM(v) })
	check := func(what, host string, want ...store.Place) {
		s.Helper()
		s.view(db, func(tx *store.Tx) error {
			got, err := tx.Places(v.ID, host)
			same(s, what, want, err, got)
			return nil
		})
	}
	to := func(host string) {
		s.Helper()
		v.Host = host
		s.update(db, func(tx *store.Tx) error { return tx.SetVMPlace(v) })
	}
	size := func(cpus int) {
		s.Helper()
		v.Shape.CPUs = cpus
		s.update(db, func(tx *store.Tx) error { return tx.SetVM(v) })
	}
	first := store.Place{Since: noon, Project: v.Project, Owner: v.Owner, CPUs: 2}
	check("inserted", "h1", first)
	check("another host", "h2")

	size(16)
	size(4)
	first.CPUs = 16
	check("resized", "h1", first)

	first.Until = pass()
	to("h2")
	second := store.Place{Since: now, Project: v.Project, Owner: v.Owner, CPUs: 4}
	check("left", "h1", first)
	check("moved", "h2", second)

	pass()
	to("h2")
	check("the same place again", "h2", second)

	second.Until = pass()
	to("")
	check("taken away", "h2", second)
	now = now.Add(time.Second)
	to("h2")
	second.Until = pass()
	to("")
	check("back at once, and taken away", "h2", second)

	pass()
	placed := v
	placed.Host = "h1"
	s.update(db, func(tx *store.Tx) error {
		now, err := tx.VM(v.ID)
		if err != nil {
			return err
		}
		now.Reservation = ""
		if err := tx.SetVMPlace(now); err != nil {
			return err
		}
		placed.Changed = now.Changed
		ok, err := tx.PlaceVM(placed)
		same(s, "placed", true, nil, ok)
		return err
	})
	third := store.Place{Since: now, Project: v.Project, Owner: v.Owner, CPUs: 4}
	check("placed", "h1", first, third)

	v.Host, v.Owner = "h1", "ben"
	third.Until, third.Owner = pass(), "ben"
	s.update(db, func(tx *store.Tx) error {
		if err := tx.SetVM(v); err != nil {
			return err
		}
		return tx.DeleteVM(v.ID)
	})
	check("deleted", "h1", first, third)

	s.update(db, func(tx *store.Tx) error {
		again, err := tx.PrunePlaces(first.Until.Add(1))
		same(s, "more to prune", false, err, again)
		return nil
	})
	check("pruned", "h1", third)
	check("pruned elsewhere", "h2", second)
}

// noStay: VMs without a host leave no stay behind.
func noStay(s *suite) {
	db := s.new()
	v := aVM(1)
	v.Host = ""
	s.update(db, func(tx *store.Tx) error {
		if err := tx.InsertVM(v); err != nil {
			return err
		}
		return tx.DeleteVM(v.ID)
	})
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.Places(v.ID, "")
		same(s, "stays", []store.Place{}, err, got)
		return nil
	})
}
