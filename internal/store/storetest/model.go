package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// world is the farm as a map.
type world struct {
	vms   map[string]farm.VM
	wrote bool // in this revision
}

// model does random things to a store and to a world, which must stay alike, and follows the feed.
func model(s *suite) {
	for seed := range uint64(3) {
		s.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			one := &suite{T: t, ctx: s.ctx, fresh: s.fresh}
			one.play(rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func (s *suite) play(random *rand.Rand) {
	url, w := s.fresh(s.T), world{vms: map[string]farm.VM{}}
	db, other := s.open(url, store.Options{}), s.open(url, store.Options{})
	mirror, after := map[string]bool{}, int64(0)
	for range 60 {
		before := w.clone()
		w.wrote = false
		fail := random.IntN(5) == 0
		revision, err := db.Update(s.ctx, func(tx *store.Tx) error {
			for range 1 + random.IntN(4) {
				if err := w.step(tx, random); err != nil {
					return err
				}
				if err := w.compareUsed(s, tx); err != nil {
					return err
				}
			}
			if fail {
				return errors.New("undo")
			}
			return nil
		})
		switch {
		case fail:
			w = before
		case err != nil:
			s.Fatal(err)
		case w.wrote && revision <= after:
			s.Fatalf("revision %d after %d", revision, after)
		}
		s.compare(db, w)
		changes, upTo, err := db.Changes(s.ctx, after, 1000)
		if err != nil {
			s.Fatal(err)
		}
		s.told(db, other, after, changes)
		after = upTo
		for _, c := range changes {
			mirror[c.ID] = !c.Deleted
		}
		maps.DeleteFunc(mirror, func(_ string, there bool) bool { return !there })
		same(s, "a mirror that follows the feed", slices.Sorted(maps.Keys(w.vms)), nil,
			slices.Sorted(maps.Keys(mirror)))
	}
}

// told compares what the writer of changes knows of them with what another reads in the database.
func (s *suite) told(db, other *store.Store, after int64, changes []store.Change) {
	s.Helper()
	read, _, err := other.Changes(s.ctx, after, 1000)
	same(s, "changes that another reads", changes, err, read)
	s.view(db, func(tx *store.Tx) error {
		for _, c := range changes {
			if c.Deleted {
				continue
			}
			now, err := tx.VM(c.ID)
			if err != nil {
				return err
			}
			told, err := tx.ChangedVM(c)
			same(s, "the VM of a change", now, err, *told)
		}
		return nil
	})
}

func (w world) clone() world { return world{vms: maps.Clone(w.vms)} }

// step does one thing to both, and says when their answers differ.
func (w *world) step(tx *store.Tx, random *rand.Rand) error {
	n := random.IntN(12)
	v := aVM(n)
	v.Revision, v.Changed = tx.Revision(), tx.Revision()
	old, there := w.vms[v.ID]
	var err error
	var want farm.Code
	if !there {
		want = store.CodeAbsent
	}
	switch random.IntN(5) {
	case 0, 1:
		want = ""
		if there {
			want = store.CodeTaken
		}
		if err = tx.InsertVM(v); err == nil {
			w.vms[v.ID] = v
		}
	case 2:
		err = tx.DeleteVM(v.ID)
		delete(w.vms, v.ID)
	case 3:
		old.Host, old.Revision = fmt.Sprint("h", random.IntN(3)), tx.Revision()
		err = tx.SetVMPlace(farm.VM{ID: v.ID, Host: old.Host, Cell: old.Cell, Plan: old.Plan,
			Reservation: old.Reservation,
			Waiting:     old.Waiting})
		w.keep(old, there)
	case 4:
		v.Owner, v.Cell, v.Host, v.Plan, v.Reservation, v.Waiting, v.Observed = fmt.Sprint("u",
			random.IntN(3)), old.Cell, old.Host, old.Plan, old.Reservation, old.Waiting, old.Observed
		v.Shape.Scratch *= farm.Bytes(random.IntN(3))
		if random.IntN(4) == 0 {
			v.Wanted.Power = farm.PowerDeleted
		}
		err = tx.SetVM(v)
		w.keep(v, there)
	}
	if err == nil {
		w.wrote = true
	}
	if e, _ := errors.AsType[*farm.Error](err); e != nil && e.Code == want || err == nil && want == "" {
		return nil
	}
	return fmt.Errorf("%s: %w, not %q", v.ID, err, want)
}

func (w *world) keep(v farm.VM, there bool) {
	if there {
		w.vms[v.ID] = v
	}
}

func (s *suite) compare(db *store.Store, w world) {
	s.Helper()
	want := slices.SortedFunc(maps.Values(w.vms),
		func(a, b farm.VM) int { return strings.Compare(a.Project+"/"+a.Name, b.Project+"/"+b.Name) })
	s.view(db, func(tx *store.Tx) error {
		got, err := tx.VMs(store.VMFilter{})
		same(s, "all VMs", want, err, got)
		return w.compareUsed(s, tx)
	})
}

// compareUsed holds the sums against what the world's VMs hold.
func (w world) compareUsed(s *suite, tx *store.Tx) error {
	s.Helper()
	want := map[string]farm.Quota{}
	for _, v := range w.vms {
		q := want[v.Project]
		if v.Wanted.Power != farm.PowerDeleted {
			q = farm.Quota{VMs: q.VMs + 1, CPUs: q.CPUs + max(v.Shape.CPUs, v.Resize.CPUs),
				Memory: q.Memory + v.Shape.Memory, Scratch: q.Scratch + v.Shape.Scratch}
		}
		want[v.Project] = q
	}
	for project, q := range want {
		got, err := tx.Used(project)
		same(s, "what VMs of "+project+" hold", q, err, got)
	}
	return nil
}
