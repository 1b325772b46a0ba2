package placer

import (
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
)

// A new VM is inserted with its place, and nothing is written after it.
func TestNewVMsAreInsertedWithTheirPlaces(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	before := p.revision
	for _, v := range l.createAll(2, farm.VM{Name: "a", Shape: large}) {
		if v.Host != host.ID || v.Cell != "east" || len(v.Plan.VCPUs) != 8 {
			t.Errorf("%+v", v)
		}
	}
	changes, upTo, err := l.store.Changes(t.Context(), before, 100)
	if err != nil || len(changes) != 2 || changes[0].Host != host.ID || changes[1].Host != host.ID || upTo != before+1 {
		t.Errorf("%+v, %v", changes, err)
	}
	l.settle(p)
	if p.revision != before+1 || len(p.fleet.On(host.ID)) != 2 || len(p.held) != 0 || !p.queue.idle() {
		t.Errorf("revision %d, held %v, line %+v", p.revision, p.held, p.queue)
	}
	storetest.Disjoint(t, l.store)
}

// Of a request that fails nothing is left, whatever had been claimed before.
func TestPlacesOfAFailedRequestAreGivenBack(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	l.create(farm.VM{Name: "a-2", Shape: small})
	if _, err := l.request(3, farm.VM{Name: "a", Shape: small}); !farm.IsCode(err, store.CodeTaken) {
		t.Fatal(err)
	}
	if n := len(p.fleet.On(host.ID)); n != 1 || len(p.held) != 0 {
		t.Errorf("%d places on the host, %v held", n, p.held)
	}
}

// A host that was closed before takes nothing, though the placer has not read of it.
func TestNewVMsAreNotPlacedByOldNews(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	l.update(func(tx *store.Tx) error { host.Closed = true; return tx.SetHost(host) })
	v := l.create(farm.VM{Name: "a", Shape: small})
	if v.Host != "" {
		t.Errorf("%+v", v)
	}
	l.settle(p)
	if got := l.must(v.ID); got.Host != "" || !strings.Contains(got.Waiting, "closed") {
		t.Errorf("%+v", got)
	}
}

// Who waits for the same comes first.
func TestNewVMsDoNotOvertake(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placingNew()
	first := l.createAll(5, farm.VM{Name: "a", Shape: sized(8, 4*farm.GiB)})
	l.settle(p)
	if l.must(first[3].ID).Host == "" || l.must(first[4].ID).Host != "" {
		t.Fatal("not four of five have a place")
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(first[0].ID) })
	if err := p.follow(t.Context()); err != nil { // there is room now, and nobody has it yet
		t.Fatal(err)
	}
	second := l.create(farm.VM{Name: "b", Shape: sized(8, 4*farm.GiB)})
	if second.Host != "" {
		t.Error("it went before one that waits")
	}
	l.settle(p)
	if l.must(first[4].ID).Host == "" || l.must(second.ID).Host != "" {
		t.Errorf("%+v\n%+v", l.must(first[4].ID), l.must(second.ID))
	}
}

// What is claimed for a transaction that goes on stays claimed when the mirror is read anew, and goes when it fails.
func TestClaimsOfOpenTransactions(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	vm := farm.VM{ID: "v", Project: "alice", Name: "v", Image: "micro", Shape: farm.Shape{CPUs: 2, Memory: farm.GiB},
		Wanted: farm.Wanted{Power: farm.PowerOn}}
	errEnough := errors.New("enough")
	_, err := l.store.Update(t.Context(), func(tx *store.Tx) error {
		p.PlaceNew(tx, &vm)
		if vm.Host != host.ID {
			t.Errorf("%+v", vm)
		}
		if err := p.load(t.Context()); err != nil {
			return err
		}
		if _, there := p.fleet.Place("v"); !there {
			t.Error("the claim is gone while its transaction goes on")
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	if _, there := p.fleet.Place("v"); there || len(p.held) != 0 {
		t.Errorf("the claim is left: %v", p.held)
	}
}

// When it is not known whether a claim was committed the store is asked; another server's lease ends all claims.
func TestClaimsInDoubt(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placingNew()
	p.Mirror.settle("v", &farm.Error{Code: store.CodeUnsure})
	if p.revision != 0 {
		t.Error("the mirror goes on")
	}
	l.settle(p)
	p.epoch++
	if v := l.create(farm.VM{Name: "a", Shape: small}); v.Host != "" {
		t.Errorf("placed without the lease: %+v", v)
	}
}
