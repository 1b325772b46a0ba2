package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placer"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/store/storetest"
	"github.com/grange-project/grange/internal/wire"
)

// fakeHost does what its wanted list says, when the test lets it, and reports.
type fakeHost struct {
	l        *lab
	host     farm.Host
	instance string
	has      map[string]fleet.Observed
	list     fleet.WantedList
	dead     bool // it answers nothing, and may run on
}

func (h *fakeHost) who() farm.Identity { return farm.Identity{Host: h.host.ID, Means: "certificate"} }

func (h *fakeHost) report() {
	h.l.t.Helper()
	r := fleet.Report{Instance: h.instance, Wanted: h.list.Revision, Whole: true}
	facts := wire.Facts(h.host.Facts, h.l.clock())
	facts.Instance, facts.Capability, r.Facts = h.instance, fleet.Capability, &facts
	for _, o := range h.has {
		r.VMs = append(r.VMs, o)
	}
	if _, err := h.l.Links.Report(h.l.t.Context(), h.who(), r); err != nil {
		h.l.t.Fatal(err)
	}
	for id, o := range h.has {
		if o.State == string(farm.VMGone) {
			delete(h.has, id)
		}
	}
}

func (h *fakeHost) poll() {
	h.l.t.Helper()
	list, _, err := h.l.Links.Wanted(h.l.t.Context(), h.who(), h.instance, 0)
	if err != nil {
		h.l.t.Fatal(err)
	}
	h.list = list
	for id, o := range h.has { // what it refused holds nothing: it is forgotten when nobody asks for it any more
		if o.State == string(farm.VMFailed) &&
			!slices.ContainsFunc(list.VMs, func(w fleet.WantedVM) bool { return w.ID == id }) {
			delete(h.has, id)
		}
	}
}

// work carries out one wish, or fails to.
func (h *fakeHost) work(r *rand.Rand) {
	if len(h.list.VMs) == 0 {
		return
	}
	w := h.list.VMs[r.IntN(len(h.list.VMs))]
	o, has := h.has[w.ID]
	now := fleet.Observed{ID: w.ID, Since: h.l.clock(), Boots: w.Boots, Builds: w.Builds}
	if has && o.State == string(farm.VMFailed) && o.Boots == w.Boots && o.Builds == w.Builds &&
		w.Power == string(farm.PowerOn) {
		return // what it refused it does not try again, unless somebody asks for something new
	}
	switch {
	case w.Power == string(farm.PowerDeleted):
		now.State = string(farm.VMGone)
	case !has && r.IntN(6) == 0:
		now.State, now.Reason = string(farm.VMFailed), string(farm.CodeNoRoom)+": somebody else was faster"
	case w.Power == string(farm.PowerOff):
		now.State = string(farm.VMStopped)
	default:
		now.State, now.Ready = string(farm.VMRunning), true
	}
	if has && o.State == now.State && o.Boots == now.Boots && o.Builds == now.Builds {
		return
	}
	h.has[w.ID] = now
}

// Whatever people ask, in whatever order hosts do it, fail or fall silent: no VM is on two hosts, none is forgotten, no
// address and no name is given twice, no quota is passed; and when all is deleted nothing is left.
func TestNothingTwice(t *testing.T) {
	steps := 300
	if testing.Short() {
		steps = 100
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLab(t)
			r := rand.New(rand.NewPCG(seed, 5))
			l.update(func(tx *store.Tx) error {
				return tx.PutProject(farm.Project{Name: "alice", Quota: farm.Quota{VMs: 12, CPUs: 60}})
			})
			var hosts []*fakeHost
			for i := range 3 {
				h := &fakeHost{l: l, host: l.machine(fmt.Sprintf("h%d", i), "east"),
					instance: fmt.Sprintf("agent-%d", i), has: map[string]fleet.Observed{}}
				h.host.Facts.Networks = []string{"br0", "br1"}
				h.report()
				h.poll()
				hosts = append(hosts, h)
			}
			epoch := l.epoch()
			p := l.mirror.Lead(epoch)
			if seed%2 == 1 {
				l.placer.Store(p)
			}
			for range steps {
				l.pass(time.Duration(r.IntN(20)) * time.Second)
				l.somebody(r)
				l.oneHost(r, hosts[r.IntN(len(hosts))], epoch)
				if r.IntN(2) == 0 {
					l.settle(p)
				}
				l.sound(hosts)
			}
			for _, what := range []string{"vm.create", "vm.gone", "vm.lost", "vm.resize", "vm.rebuild",
				"host.fence"} {
				if len(l.entries(what, action.Done)) == 0 && !testing.Short() {
					t.Errorf("nothing like %s has happened: the test proves little", what)
				}
			}
			l.empty(p, hosts)
		})
	}
}

// somebody asks for something.
func (l *lab) somebody(r *rand.Rand) {
	l.t.Helper()
	ctx := l.t.Context()
	page, err := l.VMs.List(ctx, ann, VMFilter{})
	if err != nil {
		l.t.Fatal(err)
	}
	if len(page.Items) == 0 || r.IntN(4) == 0 {
		v := CreateVM{Project: "alice", Name: fmt.Sprintf("v%d", r.IntN(20)), Image: "micro", CPUs: 1 + r.IntN(12),
			Memory: farm.Bytes(1+r.IntN(8)) * farm.GiB, Once: fmt.Sprint(r.IntN(50))}
		if r.IntN(3) == 0 {
			v.Network = "lan"
		}
		if r.IntN(3) == 0 {
			v.Tags = map[string]string{"on-loss": "replace"}
		}
		_, err = l.VMs.Create(ctx, ann, v)
	} else {
		v := page.Items[r.IntN(len(page.Items))]
		a := actions[r.IntN(len(actions)-1)]
		if a == "vm.resize" {
			_, err = l.VMs.Resize(ctx, ann, v.ID, v.Revision, ResizeVM{CPUs: 1 + r.IntN(12)})
		} else {
			_, err = l.act(a, ann, v.ID)
		}
	}
	if c := code(err); c != "" && !slices.Contains([]farm.Code{farm.CodeQuota, CodeNameTaken, CodeNoLease,
		farm.CodeVMState, farm.CodeOtherRequest, CodeBadVM, farm.CodeNoVM}, c) {
		l.t.Fatal(err)
	}
}

// oneHost lets a host do something, die, be fenced, or come back.
func (l *lab) oneHost(r *rand.Rand, h *fakeHost, epoch int64) {
	l.t.Helper()
	ctx := l.t.Context()
	switch {
	case h.dead && r.IntN(3) == 0:
		l.pass(l.Links.Silence + time.Second)
		if r.IntN(2) == 0 { // an operator pulls its plug, and says so
			if _, err := l.Hosts.Fence(ctx, site, h.host.Name, 0, "plug pulled"); err != nil {
				l.t.Fatal(err)
			}
			clear(h.has)
		}
		if _, err := l.Hosts.Open(ctx, site, []string{h.host.Name}); err != nil {
			l.t.Fatal(err)
		}
		h.dead, h.list = false, fleet.WantedList{}
		h.report()
		h.poll()
	case h.dead:
		h.work(r) // unheard
	case r.IntN(40) == 0:
		h.dead = true
	default:
		switch r.IntN(3) {
		case 0:
			h.poll()
		case 1:
			h.report()
		}
		h.work(r)
	}
	if err := l.upkeep.expire(ctx, epoch); err != nil {
		l.t.Fatal(err)
	}
}

// sound holds what must be true at any time.
func (l *lab) sound(hosts []*fakeHost) {
	l.t.Helper()
	storetest.Disjoint(l.t, l.store)
	running := map[string]string{}
	for _, h := range hosts {
		for id, o := range h.has {
			if o.State != string(farm.VMRunning) {
				continue
			}
			if other := running[id]; other != "" {
				l.t.Fatalf("VM %s runs on %s and on %s", id, other, h.host.Name)
			}
			running[id] = h.host.Name
			if _, there := l.row(id); !there {
				l.t.Fatalf("VM %s runs on %s, and nobody knows of it", id, h.host.Name)
			}
		}
	}
	l.view(func(tx *store.Tx) error {
		used, err := tx.Used("alice")
		if used.VMs > 12 || used.CPUs > 60 {
			l.t.Fatalf("%+v", used)
		}
		leases, other := tx.Leases("lan")
		addresses := map[string]bool{}
		for _, lease := range leases {
			if addresses[lease.Address.String()] {
				l.t.Fatalf("%s twice", lease.Address)
			}
			addresses[lease.Address.String()] = true
		}
		if other != nil {
			return other
		}
		return err
	})
}

// empty deletes all, lets every host answer, and looks what is left.
func (l *lab) empty(p *placer.Placer, hosts []*fakeHost) {
	l.t.Helper()
	page, err := l.VMs.List(l.t.Context(), ann, VMFilter{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range page.Items {
		if _, err := l.VMs.Delete(l.t.Context(), ann, v.ID, 0); err != nil {
			l.t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, h := range hosts {
		h.dead = false
		h.report()
		h.poll()
		for range 200 {
			h.work(r)
		}
		h.report()
		h.poll()
		if len(h.has) != 0 || len(h.list.VMs) != 0 {
			l.t.Errorf("%s: %d VMs, %d wanted", h.host.Name, len(h.has), len(h.list.VMs))
		}
	}
	l.settle(p)
	if n := l.count("alice"); n != 0 {
		l.t.Errorf("%d rows are left", n)
	}
	l.vacant(p, hosts)
}

// vacant holds that the placer has all of every host for a VM, once people have opened it.
func (l *lab) vacant(p *placer.Placer, hosts []*fakeHost) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		for _, f := range hosts {
			h, err := tx.Host(f.host.ID)
			if err != nil {
				return err
			}
			h.Fenced, h.Closed, h.Drain = time.Time{}, false, farm.Drain{}
			if err := errors.Join(tx.SetHost(h), tx.SetHostSeen(h.ID, l.clock(), 0)); err != nil {
				return err
			}
		}
		return nil
	})
	l.settle(p)
	e, err := p.Explain(l.t.Context(), farm.VM{ID: "all", Project: "alice", Cell: "east",
		Shape: farm.Shape{CPUs: 32, Memory: farm.GiB, Network: farm.NetworkNone}})
	if err != nil || e.Hosts != len(hosts) {
		l.t.Fatalf("%d hosts: %+v, %v", len(hosts), e, err)
	}
	for _, a := range e.Each {
		if !a.Fits {
			l.t.Errorf("the placer holds places on %s: %s", a.Name, a.Message)
		}
	}
}
