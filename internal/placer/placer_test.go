package placer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

func TestPlacerGivesHosts(t *testing.T) {
	l := newLab(t)
	east, west := l.machine("e1", "east"), l.machine("w1", "west")
	p := l.placing()
	mine := l.createAll(2, farm.VM{Name: "a", Shape: large})
	other := l.create(farm.VM{Project: "atlas", Name: "b", Shape: small})
	l.settle(p)
	for _, v := range mine {
		if got := l.must(v.ID); got.Host != east.ID || got.Cell != "east" || len(got.Plan.VCPUs) != 8 ||
			got.Waiting != "" {
			t.Errorf("%+v", got)
		}
	}
	if got := l.must(other.ID); got.Host != west.ID || got.Cell != "west" {
		t.Errorf("%+v", got)
	}
	a, b := l.must(mine[0].ID).Plan.Held(), l.must(mine[1].ID).Plan.Held()
	if a.Common(b) != 0 {
		t.Errorf("%v and %v share threads", a, b)
	}
}

// A VM waits with its reason until another one is gone, and the reason is written once.
func TestPlacerWaitsForRoom(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placing()
	var ids []string
	for _, v := range l.createAll(5, farm.VM{Name: "a", Shape: sized(8, 4*farm.GiB)}) {
		ids = append(ids, v.ID)
	}
	l.settle(p)
	last := l.must(ids[4])
	if last.Host != "" || !strings.Contains(last.Waiting, "too few free CPUs") {
		t.Errorf("%+v", last)
	}
	l.update(func(tx *store.Tx) error { return tx.PutShape(farm.Shape{Name: "other", CPUs: 1, Memory: farm.GiB}) })
	l.settle(p)
	if again := l.must(ids[4]); again.Revision != last.Revision {
		t.Error("its row was written again without a reason")
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(ids[1]) })
	l.settle(p)
	if now := l.must(ids[4]); now.Host == "" || now.Waiting != "" {
		t.Errorf("%+v", now)
	}
	if !p.queue.idle() || len(p.queue.waitlists) != 0 || len(p.queue.at) != 0 {
		t.Errorf("left in the queue: %+v", p.queue)
	}
}

// A VM whose image no host has waits, says so, and is placed when one has it.
func TestPlacerWaitsForTheImage(t *testing.T) {
	l := newLab(t)
	h := l.machine("e1", "east")
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Image: "el9", Shape: small})
	l.settle(p)
	if got := l.must(v.ID); got.Host != "" ||
		!strings.Contains(got.Waiting, "no host of cell east has image el9: `grange image import`") {
		t.Errorf("%+v", got)
	}
	if e, err := l.Explain(t.Context(), l.must(v.ID)); err != nil ||
		e.Changes[0].Text != "image el9 on host e1: `grange image import` there" {
		t.Errorf("%+v, %v", e, err)
	}
	h.Facts.Images = append(h.Facts.Images, "el9")
	l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
	l.settle(p)
	if got := l.must(v.ID); got.Host != h.ID || got.Waiting != "" {
		t.Errorf("%+v", got)
	}
}

// A VM of an image of the catalogue goes where the image is, of hosts that are equal.
func TestPlacerPrefersHostsWithTheImage(t *testing.T) {
	l := newLab(t)
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, name := range []string{"e1", "e2", "e3"} {
		h := l.machine(name, "east")
		if name == "e2" {
			h.Facts.Images = append(h.Facts.Images, digest)
			l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
		}
	}
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Image: "el9", Digest: digest, Shape: small})
	l.settle(p)
	if got := l.must(v.ID); got.Host != "id-e2" {
		t.Errorf("%+v", got)
	}
}

// Projects take turns, whatever one of them has in the queue.
func TestPlacerIsFair(t *testing.T) {
	l := newQueue()
	for i := range 3 {
		l.add(&farm.VM{ID: fmt.Sprint("a", i), Project: "a"})
	}
	l.add(&farm.VM{ID: "b0", Project: "b"})
	l.add(&farm.VM{ID: "c0", Project: "c"})
	l.add(&farm.VM{ID: "c1", Project: "c"})
	l.remove("a1")
	var order []string
	for c := l.next(); c != nil; c = l.next() {
		order = append(order, c.vm.ID)
	}
	if want := []string{"a0", "b0", "c0", "a2", "c1"}; !slices.Equal(order, want) {
		t.Errorf("%v, not %v", order, want)
	}
}

// What a failed commit claimed is not held, and is placed when the database answers again.
func TestPlacerGivesBackWhatWasNotCommitted(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: large})
	dead, cancel := context.WithCancel(t.Context())
	g, err := p.prepare(dead)
	if err != nil || len(g.placed) != 1 {
		t.Fatal(err, g)
	}
	cancel()
	if err := p.commit(dead, g); err == nil {
		t.Fatal("committed without a database")
	}
	if l.must(v.ID).Host != "" {
		t.Fatal("it is in the store")
	}
	p.startOver()
	l.settle(p)
	if l.must(v.ID).Host == "" {
		t.Error("it is not placed")
	}
	if n := len(p.fleet.On("id-e1")); n != 1 {
		t.Errorf("the host holds %d VMs", n)
	}
}

// Somebody who deletes or changes a VM between the claim and the commit is not overruled.
func TestPlacerCommitsOnlyWhatIsAsItWas(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placing()
	l.settle(p)
	vms := l.createAll(3, farm.VM{Name: "a", Shape: sized(2, farm.GiB)})
	g, err := p.prepare(t.Context())
	if err != nil || len(g.placed) != 3 {
		t.Fatal(err, len(g.placed))
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteVM(vms[0].ID) })
	l.want(vms[1].ID, func(vm *farm.VM) { vm.Shape.CPUs = 4 })
	if err := p.commit(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if got := l.must(vms[1].ID); got.Host != "" {
		t.Errorf("placed with its old size: %+v", got)
	}
	l.settle(p)
	if got := l.must(vms[1].ID); len(got.Plan.VCPUs) != 4 || len(l.must(vms[2].ID).Plan.VCPUs) != 2 {
		t.Errorf("%+v", got)
	}
	if _, there := l.row(vms[0].ID); there || len(p.fleet.On("id-e1")) != 2 {
		t.Error("a deleted VM holds its place")
	}
}

// A group of which nothing is as it was writes nothing: the last revision is then another's, and not the placer's own.
func TestPlacerReadsWhatCameBetween(t *testing.T) {
	for _, others := range []int{0, 1} {
		l := newLab(t)
		l.machine("e1", "east")
		p := l.placing()
		l.settle(p)
		vm := l.create(farm.VM{Name: "a", Shape: small})
		g, err := p.prepare(t.Context())
		if err != nil || len(g.placed) != 1 {
			t.Fatalf("%d placed, %v", len(g.placed), err)
		}
		for i := range others {
			l.update(func(tx *store.Tx) error { return tx.PutSetting("other", []byte{'0' + byte(i)}) })
		}
		l.want(vm.ID, func(vm *farm.VM) { vm.Tags = map[string]string{"tier": "front"} })
		if err := p.commit(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		l.settle(p)
		if got := l.must(vm.ID); got.Host == "" {
			t.Errorf("%d others have written: VM %s waits for ever", others, got.Name)
		}
	}
}

// What no cell of grange takes is handed to the batch system of the next cell, again if that failed.
func TestPlacerReserves(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return errors.Join(
			tx.PutCell(farm.Cell{Name: "east", Default: true, Closed: true}.WithDefaults()),
			tx.PutCell(farm.Cell{Name: "farm", Broker: "slurm", Projects: []string{"alice"}}.WithDefaults()))
	})
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: small})
	errAway := errors.New("away")
	var asked []string
	p.options.Reserve = func(_ context.Context, epoch int64, vm farm.VM, cell string) error {
		if asked = append(asked, vm.ID+" in "+cell); len(asked) == 1 {
			return errAway
		}
		vm.Cell, vm.Reservation = cell, farm.ToReserve
		l.update(func(tx *store.Tx) error { return errors.Join(tx.Fence(epoch), tx.SetVMPlace(vm)) })
		return nil
	}
	if _, err := p.Step(t.Context()); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	p.startOver()
	l.settle(p)
	if want := []string{v.ID + " in farm", v.ID + " in farm"}; !slices.Equal(asked, want) {
		t.Errorf("%v, not %v", asked, want)
	}
}

func TestPlacerStopsWhenAnotherLeads(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	v := l.create(farm.VM{Name: "a", Shape: large})
	if err := l.Lead(l.epoch() - 1).Run(t.Context()); !farm.IsCode(err, store.CodeNotLeader) {
		t.Errorf("%v", err)
	}
	if l.must(v.ID).Host != "" {
		t.Error("placed by one that does not lead")
	}
}

func TestPlacerResizes(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: sized(8, 8*farm.GiB)})
	l.settle(p)
	resize := func(cpus int) farm.VM {
		t.Helper()
		l.want(v.ID, func(vm *farm.VM) { to := sized(cpus, 8*farm.GiB); vm.Resize = &to })
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
	if got := resize(4); got.Shape.CPUs != 4 || got.Wanted.Builds != 2 {
		t.Errorf("%+v", got)
	}
	if p, _ := p.fleet.Place(v.ID); p.Plan.Held().Len() != 4 {
		t.Errorf("it holds %v", p.Plan.Held())
	}
}

// A VM that a host would not have goes to another one; a host that refuses those of several owners backs off, and is
// tried again.
func TestPlacerHeedsRefusals(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return tx.PutCell(farm.Cell{Name: "east", Default: true, Packing: farm.Spread}.WithDefaults())
	})
	l.machine("e1", "east")
	l.machine("e2", "east")
	p := l.placing()
	var bad string
	for i := range 3 {
		v := l.create(farm.VM{Name: fmt.Sprint("a", i), Owner: []string{"ann", "root"}[i%2],
			Shape: sized(2, farm.GiB)})
		l.settle(p)
		host := l.must(v.ID).Host
		if bad == "" {
			bad = host
		} else if host != bad {
			t.Fatalf("VM %d is on %s", i, host)
		}
		l.refuses(v.ID, farm.CodeNoRoom)
		l.settle(p)
		if got := l.must(v.ID); got.Host == bad || got.Host == "" || got.Observed.State != "" {
			t.Errorf("%+v", got)
		}
	}
	if why := p.hosts[bad].backsOff; !strings.Contains(why, "several VMs in a row") {
		t.Errorf("host %s: %q", bad, why)
	}
	v := l.create(farm.VM{Name: "big", Shape: sized(32, farm.GiB)})
	l.settle(p)
	if l.must(v.ID).Host != "" {
		t.Error("placed on a host that backs off")
	}
	l.pass(2 * time.Minute)
	l.seen(bad)
	l.seen("id-e2")
	l.settle(p)
	if got := l.must(v.ID); got.Host != bad {
		t.Errorf("%+v", got)
	}
	l.says(v.ID, farm.VMRunning)
	l.settle(p)
	if len(p.avoid.hosts) != 0 {
		t.Error("a host that runs a VM is still remembered for refusing others")
	}
}

// A host that refused an order may be carrying out the next one: only a refusal of the newest has the VM placed
// elsewhere.
func TestPlacerHeedsRefusalsOfTheNewestOrder(t *testing.T) {
	l := newLab(t)
	l.machine("e1", "east")
	l.machine("e2", "east")
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: sized(2, farm.GiB)})
	l.settle(p)
	first := l.must(v.ID).Host
	l.says(v.ID, farm.VMFailed) // and it is not said why: it stays
	for range 2 {
		l.want(v.ID, func(vm *farm.VM) { vm.WantBoot() })
	}
	refuses := func(o farm.Observed) string {
		o.State, o.Reason = farm.VMFailed, string(farm.CodeNoRoom)+": CPUs 0-3 are held by a job"
		l.update(func(tx *store.Tx) error { return tx.SetVMObserved(v.ID, o) })
		l.settle(p)
		return l.must(v.ID).Host
	}
	wanted := l.must(v.ID).Wanted
	if wanted.Boots == 0 {
		t.Fatalf("%+v", wanted)
	}
	if got := refuses(farm.Observed{Boots: wanted.Boots - 1}); got != first {
		t.Errorf("an order refused before: it went to %q", got)
	}
	if got := refuses(farm.Observed{Boots: wanted.Boots, CPUTime: time.Second}); got != first {
		t.Errorf("it has run: it went to %q", got)
	}
	if got := refuses(farm.Observed{Boots: wanted.Boots}); got == first || got == "" {
		t.Errorf("refused: it is at %q", got)
	}
}

// A host that is heard of again takes VMs again, though no change of the feed tells so.
func TestPlacerHearsOfHosts(t *testing.T) {
	l := newLab(t)
	h := l.machine("e1", "east")
	p := l.placing()
	l.settle(p)
	l.pass(10 * time.Minute)
	v := l.create(farm.VM{Name: "a", Shape: small})
	l.settle(p)
	if got := l.must(v.ID); got.Host != "" {
		t.Errorf("placed on a silent host: %+v", got)
	}
	l.seen(h.ID)
	l.pass(checkSilence)
	l.settle(p)
	if got := l.must(v.ID); got.Host != h.ID {
		t.Errorf("%+v", got)
	}
}

// A VM that no host will have is left to its owner after a few of them.
func TestPlacerGivesUpOnBadVMs(t *testing.T) {
	l := newLab(t)
	for i := range 9 {
		l.machine(fmt.Sprint("e", i), "east")
	}
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: small})
	l.settle(p)
	seen := map[string]bool{}
	for range 20 {
		got := l.must(v.ID)
		if seen[got.Host] {
			break
		}
		seen[got.Host] = true
		l.refuses(v.ID, farm.CodeNoImage)
		l.settle(p)
	}
	if got := l.must(v.ID); got.Host == "" || got.Observed.State != farm.VMFailed ||
		len(seen) != placement.MaxRejections+1 {
		t.Errorf("after %d hosts: %+v", len(seen), got)
	}
}

// VMs of a lost host are placed anew when their row has no host any more, and not before.
func TestPlacerLeavesLostVMsAlone(t *testing.T) {
	l := newLab(t)
	first := l.machine("e1", "east")
	p := l.placing()
	v := l.create(farm.VM{Name: "a", Shape: small})
	l.settle(p)
	second := l.machine("e2", "east")
	l.says(v.ID, farm.VMLost)
	l.settle(p)
	if got := l.must(v.ID); got.Host != first.ID {
		t.Errorf("%+v", got)
	}
	l.update(func(tx *store.Tx) error {
		h, err := tx.Host(first.ID)
		vm := l.must(v.ID)
		vm.Host, vm.Plan = "", farm.Plan{}
		h.Fenced = l.clock()
		return errors.Join(err, tx.SetHost(h), tx.SetVMPlace(vm), tx.SetVMObserved(vm.ID, farm.Observed{}))
	})
	l.settle(p)
	if got := l.must(v.ID); got.Host != second.ID {
		t.Errorf("%+v", got)
	}
}

// TestPlacerRuns lets VMs come and go while the placer runs by itself, and holds its memory against the store at the
// end.
func TestPlacerRuns(t *testing.T) {
	l := newLab(t)
	for i := range 4 {
		l.machine(fmt.Sprint("e", i), "east")
	}
	ctx, stop := context.WithCancel(t.Context())
	l.placer = l.placing()
	var all sync.WaitGroup
	all.Go(func() {
		if err := l.placer.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var ids []string
	for i := range 40 {
		v := l.create(farm.VM{Name: fmt.Sprint("a", i), Shape: sized(1+i%8, 2*farm.GiB)})
		if ids = append(ids, v.ID); i%3 == 2 {
			l.update(func(tx *store.Tx) error { return tx.DeleteVM(ids[i/2]) })
			ids = slices.Delete(ids, i/2, i/2+1)
		}
	}
	for waits := true; waits; {
		waits = false
		var at int64
		l.view(func(tx *store.Tx) error {
			at = tx.Revision()
			vms, err := tx.VMs(store.VMFilter{Unplaced: true})
			for _, v := range vms {
				waits = waits || v.Waiting == ""
			}
			return err
		})
		if waits {
			if _, err := l.store.Wait(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	all.Wait()
	var plans []farm.Plan
	l.view(func(tx *store.Tx) error {
		vms, err := tx.VMs(store.VMFilter{Host: "id-e0"})
		for _, v := range vms {
			plans = append(plans, v.Plan)
		}
		return err
	})
	room := numa.NewRoom(topologytest.CERN2650v2(), numa.Reserve{}, nil)
	for _, p := range plans {
		var err error
		if room, err = room.Take(p); err != nil {
			t.Fatal(err)
		}
	}
}

// Of VMs that are to be tried again the last one of a class may go before its turn comes.
func TestQueueOutlivesAnEmptyWaitlist(t *testing.T) {
	l := newQueue()
	wait := func(name string, cpus int, cell string) {
		vm := &farm.VM{ID: name, Project: "p", Name: name, Shape: farm.Shape{CPUs: cpus}}
		l.add(vm)
		l.park(l.next(), placement.Request{VM: name, Shape: vm.Shape, Cells: []string{cell}})
	}
	wait("a", 1, "east")
	wait("b", 2, "east")
	wait("c", 3, "west")
	l.retryIn(map[string]bool{"east": true})
	l.remove("b")
	l.retryIn(map[string]bool{"west": true})
	var tried []string
	for c := l.first(); c != nil; c = l.first() {
		tried = append(tried, c.vm.ID)
		l.refused()
	}
	if d := cmp.Diff([]string{"a", "c"}, tried); d != "" || !l.idle() || len(l.waitlists) != 2 {
		t.Errorf("%s%d waitlists", d, len(l.waitlists))
	}
}
