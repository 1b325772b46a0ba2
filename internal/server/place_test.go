package server

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
)

// The answer to a request has the places, and so has the one commit; nothing is written after it.
func TestNewVMsAreAnsweredWithTheirPlaces(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	p := l.placing()
	l.settle(p)
	l.placer.Store(p)
	before := l.revision()
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
	if now := l.revision(); now != before+1 {
		t.Errorf("revision %d, not %d", now, before+1)
	}
	storetest.Disjoint(t, l.store)
}

// Of a request that fails nothing is left, whatever had been claimed before: all the room of the host is there.
func TestPlacesOfAFailedRequestAreGivenBack(t *testing.T) {
	l := newLab(t)
	host := l.machine("e1", "east")
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice"}) })
	p := l.placing()
	l.settle(p)
	l.placer.Store(p)
	l.create(ann, web("a-2"))
	_, err := l.VMs.Create(t.Context(), ann,
		CreateVM{Project: "alice", Name: "a", Count: 3, Image: "micro", Shape: "small"})
	if code(err) != CodeNameTaken {
		t.Fatal(err)
	}
	rest := l.create(ann, CreateVM{Project: "alice", Name: "b", Image: "micro", CPUs: 30, Memory: 4 * farm.GiB})[0]
	if rest.Host != host.ID {
		t.Errorf("%+v", rest)
	}
}

// While the loop of the placer runs, requests have their places at once; no longer when it has ended.
func TestPlacesWhileThePlacerRuns(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := l.place(ctx, l.epoch()); err != nil {
			t.Error(err)
		}
	})
	first := l.create(ann, web("a"))[0]
	for at := l.revision(); l.must(first.ID).Host == ""; at = l.revision() {
		if _, err := l.store.Wait(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Leads() {
		t.Error("it places, and does not lead")
	}
	stop()
	all.Wait()
	if late := l.create(ann, web("b"))[0]; late.Host != "" || l.Leads() {
		t.Errorf("placed after the end: %+v", late)
	}
}

// A VM has another size once the placer has claimed it, or a notice that says why not.
func TestResizeIsPlaced(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice"}) })
	l.machine("e1", "east")
	p := l.placing()
	v := l.create(ann, CreateVM{Project: "alice", Name: "a", Image: "micro", CPUs: 8, Memory: 8 * farm.GiB})[0]
	l.settle(p)
	resize := func(cpus int) farm.VM {
		t.Helper()
		if _, err := l.VMs.Resize(t.Context(), ann, v.ID, 0, ResizeVM{CPUs: cpus}); err != nil {
			t.Fatal(err)
		}
		l.settle(p)
		return l.must(v.ID)
	}
	if got := resize(32); got.Resize != nil || got.Shape.CPUs != 32 || len(got.Plan.VCPUs) != 32 ||
		got.Wanted.Builds != 1 || got.Waiting != "" {
		t.Errorf("%+v", got)
	}
	if got := resize(33); got.Resize != nil || got.Shape.CPUs != 32 || len(got.Plan.VCPUs) != 32 ||
		got.Wanted.Builds != 1 || !strings.HasPrefix(got.Waiting, "not resized to 33 CPUs and 8G: host e1 ") {
		t.Errorf("%+v", got)
	}
	if got, err := l.VMs.Update(t.Context(), ann, v.ID, 0, UpdateVM{Tags: &map[string]string{"a": "b"}}); err != nil ||
		got.Notice == "" {
		t.Errorf("the notice went with a tag: %+v, %v", got, err)
	}
	if got, err := l.VMs.Restart(t.Context(), ann, v.ID, 0); err != nil || got.Notice != "" ||
		l.must(v.ID).Waiting != "" {
		t.Errorf("the notice is old: %+v, %v", got, err)
	}
	if got := resize(4); got.Shape.CPUs != 4 || got.Wanted.Builds != 2 {
		t.Errorf("%+v", got)
	}
}
