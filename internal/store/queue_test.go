package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// TestCommitFailsTogether: when a commit fails, so has what was read of it, and not written.
func TestCommitFailsTogether(t *testing.T) {
	s := inside(t)
	var seen []farm.Cell
	group := writeTogether(t, s,
		func(tx *Tx) error {
			for _, text := range []string{"CREATE TABLE child (parent TEXT REFERENCES parent (id) DEFERRABLE " +
				"INITIALLY DEFERRED)", "CREATE TABLE parent (id TEXT PRIMARY KEY)",
				"INSERT INTO child VALUES ('none')"} { // the commit finds that there is none
				if _, err := tx.exec(text); err != nil {
					return err
				}
			}
			return tx.PutCell(farm.Cell{Name: "a"})
		},
		func(tx *Tx) (err error) {
			seen, err = tx.Cells()
			return err
		})
	if len(seen) != 1 {
		t.Fatalf("the second saw %d cells of the first", len(seen))
	}
	for n, u := range group {
		if u.err == nil {
			t.Errorf("update %d is told that it was done", n)
		}
	}
}

// TestAhead: who is ahead goes before all that wait, and behind those that are ahead too.
func TestAhead(t *testing.T) {
	s := inside(t)
	var order []string
	var all []*update
	for _, name := range []string{"a", "b", "c ahead", "d", "e ahead"} {
		u := newUpdate(t.Context(), func(tx *Tx) error {
			order = append(order, name)
			return tx.PutCell(farm.Cell{Name: name[:1]})
		})
		all = append(all, u)
		s.queue.join(u, strings.HasSuffix(name, "ahead"))
	}
	writeAll(s, all)
	if want := []string{"c ahead", "e ahead", "a", "b", "d"}; !slices.Equal(order, want) {
		t.Errorf("in the order %q, not %q", order, want)
	}
}

// TestGroupEnds: a group that has taken its time leaves the others for the next one, which has a commit of its own.
func TestGroupEnds(t *testing.T) {
	s := inside(t)
	s.queue.rhythm = rhythm{}
	var puts []func(*Tx) error
	for n := range 4 {
		puts = append(puts, func(tx *Tx) error {
			var before []farm.Cell
			err := s.View(t.Context(), func(other *Tx) (err error) {
				before, err = other.Cells()
				return err
			})
			if err != nil || len(before) != n {
				t.Errorf("update %d: %d before it were committed (%v)", n, len(before), err)
			}
			return tx.PutCell(farm.Cell{Name: fmt.Sprint("c", n)})
		})
	}
	for n, u := range writeTogether(t, s, puts...) {
		if u.err != nil || u.revision != int64(n+1) {
			t.Errorf("update %d: revision %d, %v", n, u.revision, u.err)
		}
	}
}

// TestFewCommits: what waits together is committed together, up to the bound of a group. The number of commits, each of
// which waits for a disk and a processor, does not depend on the machine's speed.
func TestFewCommits(t *testing.T) {
	s := inside(t)
	var puts []func(*Tx) error
	for n := range 4 * maxTogether {
		puts = append(puts, func(tx *Tx) error { return tx.PutCell(farm.Cell{Name: fmt.Sprint("c", n)}) })
	}
	before := s.Written().Commits
	writeTogether(t, s, puts...)
	if n := s.Written().Commits - before; n != 4 {
		t.Errorf("%d commits, not 4", n)
	}
}

// TestOnlyVMsSince: what came before in the same commit counts, and so does what the transaction has done itself.
func TestOnlyVMsSince(t *testing.T) {
	s := inside(t)
	const start = 1
	writeTogether(t, s, func(tx *Tx) error { return tx.PutCell(farm.Cell{Name: "a"}) })
	vm := func(id string, want bool) func(*Tx) error {
		return func(tx *Tx) error {
			if err := tx.InsertVM(farm.VM{ID: id, Project: "p", Name: id}); err != nil {
				return err
			}
			if got := tx.OnlyVMsSince(start); got != want {
				t.Errorf("at VM %s only VMs changed: %v", id, got)
			}
			if tx.OnlyVMsSince(start - 1) {
				t.Errorf("at VM %s the cell is forgotten", id)
			}
			return nil
		}
	}
	failed := func(tx *Tx) error { return errors.Join(tx.PutCell(farm.Cell{Name: "c"}), errBroken) }
	own := func(tx *Tx) error {
		err := tx.PutCell(farm.Cell{Name: "d"})
		if tx.OnlyVMsSince(start) {
			t.Error("its own cell is forgotten")
		}
		return err
	}
	for _, group := range [][]func(*Tx) error{{vm("1", true), failed, vm("2", true), own, vm("3", false)},
		{vm("4", false)}} {
		writeTogether(t, s, group...)
	}
	if _, err := s.Update(t.Context(), vm("5", false)); err != nil {
		t.Error(err)
	}
}

// TestEndIsTold: each of a group, and one alone, is told once what has become of it.
func TestEndIsTold(t *testing.T) {
	s := inside(t)
	told := map[string][]bool{}
	put := func(name string, err error) func(*Tx) error {
		return func(tx *Tx) error {
			tx.OnEnd(func(err error) { told[name] = append(told[name], err == nil) })
			return errors.Join(tx.PutCell(farm.Cell{Name: name}), err)
		}
	}
	idle := func(tx *Tx) error {
		tx.OnEnd(func(err error) { told["idle"] = append(told["idle"], err == nil) })
		return nil
	}
	writeTogether(t, s, put("a", nil), put("b", errBroken), idle, put("c", nil))
	for _, name := range []string{"d", "e"} {
		_, err := s.Update(t.Context(), put(name, map[string]error{"e": errBroken}[name]))
		if (err == nil) != (name == "d") {
			t.Error(err)
		}
	}
	want := map[string][]bool{"a": {true}, "b": {false}, "idle": {false}, "c": {true}, "d": {true}, "e": {false}}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("(-want +told):\n%s", d)
	}
	var revision int64
	if err := s.View(t.Context(), func(tx *Tx) error { revision = tx.Revision(); return nil }); err != nil ||
		revision != 3 {
		t.Errorf("revision %d after three updates, %v", revision, err)
	}
}

// TestRhythm: groups take about as long as commits do, within bounds, and one commit alone says little.
func TestRhythm(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ commit, want time.Duration }{{0, startRhythm.least}, {ms, ms},
		{15 * ms, 15 * ms}, {time.Hour, startRhythm.most}} {
		r := startRhythm
		for range 100 {
			r.committed(c.commit)
		}
		if off := (r.now - c.want).Abs(); off > 10*time.Microsecond {
			t.Errorf("after commits of %v: %v, want %v", c.commit, r.now, c.want)
		}
		if before := r.now; c.want == ms {
			if r.committed(time.Hour); r.now > before*5/4 {
				t.Errorf("one slow commit: %v after %v", r.now, before)
			}
		}
	}
}
