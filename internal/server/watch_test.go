package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
)

// What a filter of a watch chooses, and what the caller may not see, is left out before it is read: it is told what is
// told when all is read first.
func TestWatchFilters(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := crowd(t, r)
	for range 30 {
		l.update(func(tx *store.Tx) error { return anyChange(tx, r) })
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteHost("id-h2") })
	feed, _, err := l.store.Changes(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for name, who := range lookers {
		for _, f := range []WatchFilter{{}, {Kinds: []string{"vm"}}, {Kinds: []string{"host", "group"}},
			{Kinds: []string{"user"}}, {Project: "zeta"}, {Kinds: []string{"vm"}, Project: "alice"}} {
			got, err := l.seenOf(t.Context(), who, f.of(feed))
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(l.readFirst(who, feed), func(w Watched) bool {
				return len(f.Kinds) > 0 && !slices.Contains(f.Kinds, w.Kind) || f.Project != "" && w.VM != nil &&
					w.VM.Project != f.Project
			})
			if d := cmp.Diff(lines(want), lines(got)); d != "" {
				t.Errorf("%s, %+v (-want +got):\n%s", name, f, d)
			}
			told += len(got)
		}
	}
	if told < 1000 {
		t.Errorf("only %d were told at all", told)
	}
}

func anyChange(tx *store.Tx, r *rand.Rand) error {
	vms, err := tx.VMs(store.VMFilter{})
	if err != nil {
		return err
	}
	vm := vms[r.IntN(len(vms))]
	switch r.IntN(5) {
	case 0:
		return tx.DeleteVM(vm.ID)
	case 1:
		vm.Cell, vm.Host = "west", "id-h2"
		return tx.SetVMPlace(vm)
	case 2:
		return tx.SetHostFacts("id-h1", farm.Facts{ScratchFree: farm.Bytes(r.Int32())})
	case 3:
		return tx.PutGroup(farm.ServerGroup{Project: vm.Project, Name: fmt.Sprint("g", r.IntN(3)),
			Affinity: farm.Apart})
	}
	return tx.SetVMObserved(vm.ID, farm.Observed{State: farm.VMRunning, Since: time.Unix(r.Int64N(1e9), 0).UTC()})
}

// readFirst is seenOf where each VM and host is read before anything else is decided.
func (l *lab) readFirst(who farm.Identity, feed []store.Change) (all []Watched) {
	l.t.Helper()
	err := l.look(l.t.Context(), who, policy.ReadVM, func(c *call) error {
		for i, ch := range feed {
			if slices.ContainsFunc(feed[i+1:], func(later store.Change) bool {
				return later.Kind == ch.Kind &&
					later.ID == ch.ID
			}) {
				continue
			}
			w, ok, err := Watched{Revision: ch.Revision, Kind: string(ch.Kind), ID: ch.ID,
				Deleted: ch.Deleted}, false, error(nil)
			switch ch.Kind {
			case store.KindVM:
				err = watching{c}.watchedVM(ch, &w)
				ok = w.VM != nil || w.Deleted &&
					c.Allowed(policy.ReadVM, policy.Target{Project: ch.Project, Owner: c.Who.User})
			case store.KindHost:
				err = watching{c}.watchedHost(ch, &w)
				ok = w.Host != nil || w.Deleted && c.Allowed(policy.ReadHost, policy.Target{})
			default:
				w, ok, err = watching{c}.watched(ch)
			}
			if err != nil {
				return err
			}
			if ok {
				all = append(all, w)
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

func lines(all []Watched) (lines []string) {
	for _, w := range all {
		lines = append(lines, fmt.Sprint(w.Revision, w.Kind, w.ID, w.Deleted, w.VM != nil, w.Host != nil))
	}
	return lines
}
