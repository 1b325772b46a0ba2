package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// placingNew is a placer that new VMs have their places from at once.
func (l *lab) placingNew() *placer {
	l.t.Helper()
	p := l.placing()
	l.settle(p)
	l.placer.Store(p)
	return p
}

// disjoint holds that VMs of one host share no thread.
func (l *lab) disjoint() {
	l.t.Helper()
	l.view(func(tx *store.Tx) error {
		vms, err := tx.VMs(store.VMFilter{})
		for i, a := range vms {
			for _, b := range vms[:i] {
				if a.Host != "" && a.Host == b.Host && a.Plan.Held().Common(b.Plan.Held()) != 0 {
					l.t.Fatalf("VMs %s and %s have threads %v and %v of %s", a.Name, b.Name, a.Plan.Held(),
						b.Plan.Held(), a.Host)
				}
			}
		}
		return err
	})
}

// The answer to a request has the places, and so has the one commit; nothing is written after it.
func TestNewVMsAreAnsweredWithTheirPlaces(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	before := p.revision
	made := l.create(ann, CreateVM{Project: "alice", Name: "a", Count: 2, Image: "micro", Shape: "large"})
	for _, v := range made {
		if v.HostName != "e1" || v.State != farm.VMStarting || v.Host != host.ID || v.Cell != "east" ||
			len(v.Plan.VCPUs) != 8 {
			t.Errorf("%+v", v)
		}
		if d := cmp.Diff(v.VM, l.must(v.ID), comparers...); d != "" {
			t.Errorf("told and kept (-told +kept):\n%s", d)
		}
	}
	changes, upTo, err := l.store.Changes(t.Context(), before, 100)
	if err != nil || len(changes) != 2 || changes[0].Host != host.ID || changes[1].Host != host.ID || upTo != before+1 {
		t.Errorf("%+v, %v", changes, err)
	}
	l.settle(p)
	if p.revision != before+1 || len(p.fleet.On(host.ID)) != 2 || len(p.held) != 0 || !p.line.idle() {
		t.Errorf("revision %d, held %v, line %+v", p.revision, p.held, p.line)
	}
	l.disjoint()
}

// Of a request that fails nothing is left, whatever had been claimed before.
func TestPlacesOfAFailedRequestAreGivenBack(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placingNew()
	l.create(ann, web("a-2"))
	_, err := l.CreateVMs(t.Context(), ann,
		CreateVM{Project: "alice", Name: "a", Count: 3, Image: "micro", Shape: "small"})
	if code(err) != CodeNameTaken {
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
	v := l.create(ann, web("a"))[0]
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
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice"}) })
	l.settle(p)
	first := l.create(ann, CreateVM{Project: "alice", Name: "a", Count: 5, Image: "micro", CPUs: 8,
		Memory: 4 * farm.GiB})
	l.settle(p)
	if l.must(first[3].ID).Host == "" || l.must(first[4].ID).Host != "" {
		t.Fatal("not four of five have a place")
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(first[0].ID) })
	if err := p.follow(t.Context()); err != nil { // there is room now, and nobody has it yet
		t.Fatal(err)
	}
	second := l.create(ann, CreateVM{Project: "alice", Name: "b", Image: "micro", CPUs: 8, Memory: 4 * farm.GiB})[0]
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
		l.PlaceNew(tx, &vm)
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
	p.mirror.settle("v", &farm.Error{Code: store.CodeUnsure})
	if p.revision != 0 {
		t.Error("the mirror goes on")
	}
	l.settle(p)
	p.epoch++
	if v := l.create(ann, web("a"))[0]; v.Host != "" {
		t.Errorf("placed without the lease: %+v", v)
	}
}
