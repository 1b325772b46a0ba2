package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/cloud/cloudtest"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/fake"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/waittest"
)

// twoHosts are two agents, and a server as far as moves need one: it has the one word of the other, and believes the
// source.
type twoHosts struct {
	*testing.T
	at      map[string]*farmhouse // "a" and "b"
	vm      *fleet.WantedVM
	host    string // that the VM is on, as the server has it
	move    *fleet.MoveOrder
	to      string
	outcome string // of the last move: fleet.MoveGone or MoveFailed
	reason  string
	away    bool // the server hears and says nothing
}

func newTwoHosts(t *testing.T) *twoHosts {
	ca, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h := &twoHosts{T: t, at: map[string]*farmhouse{}}
	for _, id := range []string{"a", "b"} {
		f := newFarmhouse(t)
		f.close()
		f.peers = cloudtest.NewPeer(t, ca, id)
		f.open()
		h.at[id] = f
	}
	for id, f := range h.at {
		f.wrap = func(hv hyper.Hypervisor) hyper.Hypervisor {
			return &lonely{Hypervisor: hv, other: h.at[other(id)], t: h}
		}
		f.close()
		f.open()
	}
	h.vm, h.host = h.at["a"].cloud(), "a"
	h.vm.Shape.Purpose = string(farm.PurposeService)
	h.serve(func() bool { return h.observed("a").State == string(farm.VMRunning) && h.observed("a").Ready })
	return h
}

func other(id string) string { return map[string]string{"a": "b", "b": "a"}[id] }

// lonely fails the test when a machine is to run while the other host's runs.
type lonely struct {
	hyper.Hypervisor
	other *farmhouse
	t     *twoHosts
}

func (l *lonely) alone(what, id string) {
	state, err := l.other.host.Open().State(context.Background(), id)
	if err == nil && state == hyper.Running {
		l.t.Errorf("%s of a machine that runs on the other host", what)
	}
}

func (l *lonely) Resume(ctx context.Context, id string) error {
	l.alone("resume", id)
	return l.Hypervisor.Resume(ctx, id)
}

func (l *lonely) CancelMove(ctx context.Context, id string) error {
	l.alone("cancel", id)
	return l.Hypervisor.CancelMove(ctx, id)
}

func (h *twoHosts) observed(id string) fleet.Observed {
	vms, _ := h.at[id].agent.Cloud.Observed()
	for _, o := range vms {
		if o.ID == h.vm.ID {
			return o
		}
	}
	return fleet.Observed{}
}

// serve does what a server does until done: it hears both hosts, and tells them what it wants.
func (h *twoHosts) serve(done func() bool) {
	h.Helper()
	for limit := time.Now().Add(waittest.Limit); ; time.Sleep(5 * time.Millisecond) {
		if !h.away {
			h.once()
		}
		if done() {
			return
		}
		if time.Now().After(limit) {
			h.Fatalf("never there; the VM is on %s, move %+v to %s, outcome %q %q; a %+v; b %+v", h.host, h.move, h.to,
				h.outcome, h.reason, h.observed("a"), h.observed("b"))
		}
	}
}

func (h *twoHosts) once() {
	source, target := h.observed(h.host), h.observed(other(h.host))
	if s := source.Move; h.move != nil && s != nil && s.ID == h.move.ID {
		switch s.Phase {
		case fleet.MoveGone:
			h.host, h.move, h.outcome = h.to, nil, fleet.MoveGone
		case fleet.MoveFailed:
			h.move, h.outcome, h.reason = nil, fleet.MoveFailed, s.Reason
		}
	}
	if t := target.Move; h.move != nil && t != nil && t.ID == h.move.ID {
		h.move.Address = t.Address
		if t.Phase == fleet.MoveFailed {
			h.move.Cancel, h.reason = true, t.Reason
		}
	}
	for id, f := range h.at {
		w := *h.vm
		switch {
		case h.move != nil && id == h.host:
			o := *h.move
			o.Host, o.Name = other(id), "host "+other(id)
			w.Move = &o
		case h.move != nil:
			o := *h.move
			o.Host, o.Name, o.Come, o.Address = other(id), "host "+other(id), true, ""
			w.Move = &o
		case id != h.host && (h.observed(id).State == "" || h.observed(id).State == string(farm.VMGone)):
			f.want()
			continue
		case id != h.host:
			w = fleet.WantedVM{ID: w.ID, Power: string(farm.PowerDeleted)}
		}
		f.want(&w)
	}
}

// order begins a move.
func (h *twoHosts) order() {
	h.move = &fleet.MoveOrder{ID: api.NewID(), Digest: h.observed(h.host).Digest}
	h.to, h.outcome, h.reason = other(h.host), "", ""
}

// settled waits until the VM runs on a host, and nothing of it is on the other one.
func (h *twoHosts) settled(id string) {
	h.Helper()
	h.serve(func() bool {
		o := h.observed(id)
		return h.move == nil && h.host == id && o.State == string(farm.VMRunning) && o.Ready &&
			h.observed(other(id)).State == "" && h.at[id].does(h.vm) == hyper.Running &&
			h.at[other(id)].does(h.vm) == hyper.Gone
	})
	left, err := os.ReadDir(h.at[other(id)].agent.machines.DisksDir())
	if err != nil || len(left) > 0 {
		h.Errorf("left on host %s: %v, %v", other(id), left, err)
	}
	if _, holders := h.at[other(id)].agent.ledger.Neighbours(""); len(holders) > 0 {
		h.Errorf("host %s has claims of %v", other(id), holders)
	}
}

func (f *farmhouse) does(w *fleet.WantedVM) hyper.State {
	state, err := f.host.Open().State(context.Background(), w.ID)
	if err != nil {
		f.Fatal(err)
	}
	return state
}

// TestMove goes there and back.
func TestMove(t *testing.T) {
	h := newTwoHosts(t)
	jobs := len(h.at["a"].guests.jobs[h.vm.ID])
	h.order()
	h.settled("b")
	if r := h.at["b"].record(h.vm); r.In != nil || !r.Ran || r.Boot != machine.BootID() || len(r.Plan.VCPUs) != 1 ||
		jobs == 0 {
		t.Errorf("the record at the target: %+v", r)
	}
	h.order()
	h.settled("a")
	h.order()
	h.settled("b")
	h.at["b"].close()
	h.at["b"].open()
	h.settled("b")
	h.vm.Power = string(farm.PowerDeleted)
	h.serve(func() bool { return h.observed("b").State == string(farm.VMGone) })
}

// TestMoveWithoutServer has the server go away once the move is under way: the hosts settle it.
func TestMoveWithoutServer(t *testing.T) {
	h := newTwoHosts(t)
	h.order()
	h.serve(func() bool { s := h.observed("a").Move; return s != nil && s.Phase != fleet.MoveFailed })
	h.away = true
	h.serve(func() bool { return h.observed("b").State == string(farm.VMRunning) && h.observed("b").Ready })
	if h.at["a"].does(h.vm) == hyper.Running {
		t.Error("it runs twice")
	}
	h.away = false
	h.settled("b")
}

// TestMoveFails has each step fail on each side: the VM runs on where it was, people are told why, and the next move
// works.
func TestMoveFails(t *testing.T) {
	h := newTwoHosts(t)
	refused := &farm.Error{Kind: farm.Conflict, Code: hyper.CodeCPU, Message: "refused by the test"}
	for side, steps := range map[string][]string{"a": {fake.Describing, fake.Beginning, fake.Sending},
		"b": {fake.Fitting, fake.Awaiting, fake.Arriving}} {
		for _, step := range steps {
			f := h.at[side]
			f.host.Moving = func(_ context.Context, s, _ string) error {
				if s == step {
					return refused
				}
				return nil
			}
			h.order()
			h.serve(func() bool { return h.outcome == fleet.MoveFailed })
			if h.reason != "move-cpu: refused by the test" {
				t.Errorf("%s on %s: %q", step, side, h.reason)
			}
			h.settled("a")
			f.host.Moving = nil
		}
	}
	b := h.at["b"]
	// Of these the target reports why, too, and the server takes the order back: the source may hear that first.
	b.host.Observe = func(hyper.Machine) numa.Observed { return numa.Observed{} }
	h.order()
	h.serve(func() bool { return h.outcome == fleet.MoveFailed })
	if code := reasonCode(h.reason); code != string(machine.CodeBadPins) && code != string(cloud.CodeMoveCancelled) {
		t.Errorf("pins are elsewhere at the target: %q", h.reason)
	}
	b.host.Observe = nil
	h.settled("a")
	b.agent.ledger.Drain(ledger.Drain{Reason: "other parameters of KVM"})
	h.order()
	h.serve(func() bool { return h.move != nil && h.move.Cancel })
	if code := reasonCode(h.reason); code != string(ledger.CodeHostDrained) {
		t.Errorf("the target is drained: %q", h.reason)
	}
	b.agent.ledger.Resume()
	h.serve(func() bool { return h.outcome == fleet.MoveFailed })
	h.settled("a")
	h.vm.Image = "none"
	h.order()
	h.move.Digest = "sha256:none"
	h.serve(func() bool { return h.outcome == fleet.MoveFailed || h.move != nil && h.move.Cancel })
	if code := reasonCode(h.reason); code != string(farm.CodeNoImage) && code != string(cloud.CodeMoveCancelled) {
		t.Errorf("no image at the target: %q", h.reason)
	}
	h.vm.Image = "micro"
	h.settled("a")
	h.order()
	h.settled("b")
}

// TestMoveCancelled takes a move back at each step: by an order, by another wish, by deletion.
func TestMoveCancelled(t *testing.T) {
	h := newTwoHosts(t)
	for side, steps := range map[string][]string{"a": {fake.Describing, fake.Beginning, fake.Sending},
		"b": {fake.Fitting, fake.Awaiting, fake.Arriving}} {
		for _, step := range steps {
			at := make(chan struct{}, 1)
			goOn := make(chan struct{})
			h.at[side].host.Moving = func(ctx context.Context, s, _ string) error {
				if s != step {
					return nil
				}
				at <- struct{}{}
				select {
				case <-goOn:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			h.order()
			h.serve(func() bool { return len(at) > 0 })
			h.move.Cancel = true
			h.serve(func() bool { return h.outcome != "" || len(at) > 1 })
			close(goOn)
			h.at[side].host.Moving = nil
			h.settled("a")
			if code := reasonCode(h.reason); code != string(cloud.CodeMoveCancelled) {
				t.Errorf("cancelled at %s: %q", step, h.reason)
			}
		}
	}
	h.order()
	h.move.Cancel = true
	h.settled("a")
}

// TestMoveKilled kills the agent of either side before and behind each call of its hypervisor on the way, and has the
// next one go on: the VM runs on exactly one host in the end, whatever the server knows, and at no time on two.
func TestMoveKilled(t *testing.T) {
	h := newTwoHosts(t)
	for _, side := range []string{"a", "b"} {
		for call := 1; ; call++ {
			killed, went := false, map[string]int{}
			for _, behind := range []bool{false, true} {
				killed = h.killedOnTheWay(side, call, behind) || killed
				went[h.host]++
				if h.host == "b" { // back, for the next time
					h.order()
					h.settled("a")
				}
			}
			if !killed {
				t.Logf("host %s: %d calls", side, call-1)
				break
			}
		}
	}
}

func (h *twoHosts) killedOnTheWay(side string, call int, behind bool) bool {
	h.Helper()
	f := h.at[side]
	var once sync.Once
	dead := make(chan struct{})
	m := &mortal{Hypervisor: f.host.Open(), behind: behind, left: -1}
	m.kill = func() { once.Do(func() { close(dead) }) }
	wrap := f.wrap
	f.close()
	f.wrap = func(hyper.Hypervisor) hyper.Hypervisor { return wrap(m) }
	f.open()
	h.settled("a")
	m.mu.Lock()
	m.left = call
	m.mu.Unlock()
	h.order()
	isDead := func() bool {
		select {
		case <-dead:
			return true
		default:
			return false
		}
	}
	h.serve(func() bool { return isDead() || h.outcome != "" })
	f.stop(errKilled)
	f.close()
	f.wrap = wrap
	f.open()
	h.serve(func() bool { return h.move == nil })
	h.settled(h.host)
	return isDead()
}

// firstLine is how a source begins a connection.
type firstLine struct{ Kind, Move, VM string }

// send connects as a source does; its error is the other side's, or of the connection.
func (l firstLine) send(p cloudtest.Peer, address string) error {
	config, err := p.TLS()
	if err != nil {
		return err
	}
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(l); err != nil {
		return err
	}
	var answer struct{ Error *farm.Error }
	if err := json.NewDecoder(c).Decode(&answer); err != nil || answer.Error == nil {
		return err
	}
	return answer.Error
}

// TestMoveStrangers has others connect to a host that awaits a VM: another host of the fleet, another fleet's,
// nobody's.
func TestMoveStrangers(t *testing.T) {
	h := newTwoHosts(t)
	arrived := make(chan struct{})
	goOn := make(chan struct{})
	h.at["a"].host.Moving = func(_ context.Context, s, _ string) error {
		if s == fake.Describing {
			close(arrived)
			<-goOn
		}
		return nil
	}
	h.order()
	h.serve(func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	address, id := h.move.Address, h.move.ID
	otherCA, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ours := h.at["a"].peers.(cloudtest.Peer)
	for name, c := range map[string]struct {
		peer cloudtest.Peer
		open firstLine
	}{
		"another host":  {cloudtest.NewPeer(t, ours.CA, "c"), firstLine{Kind: "control", Move: id, VM: h.vm.ID}},
		"another fleet": {cloudtest.NewPeer(t, otherCA, "a"), firstLine{Kind: "control", Move: id, VM: h.vm.ID}},
		"another move":  {ours, firstLine{Kind: "control", Move: "x", VM: h.vm.ID}},
		"another VM":    {ours, firstLine{Kind: "control", Move: id, VM: api.NewID()}},
		"a word":        {ours, firstLine{Kind: "verdict", Move: id, VM: h.vm.ID}},
		"no kind":       {ours, firstLine{Kind: "x", Move: id, VM: h.vm.ID}},
		"long":          {ours, firstLine{Kind: "x", Move: string(make([]byte, 4<<20)), VM: h.vm.ID}},
	} {
		if err := c.open.send(c.peer, address); err == nil {
			t.Errorf("%s is let in", name)
		}
	}
	raw, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		if _, err = raw.Read(make([]byte, 1)); err == nil {
			t.Error("nobody is let in")
		}
		raw.Close()
	}
	close(goOn)
	h.settled("b")
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}); err == nil ||
		errors.As(err, new(tls.AlertError)) {
		t.Error("the port is open after the move")
	}
}

// reasonCode is the code that a reason begins with.
func reasonCode(reason string) string {
	code, _, _ := strings.Cut(reason, ": ")
	return code
}
