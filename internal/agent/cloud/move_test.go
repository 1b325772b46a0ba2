package cloud

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/cloud/cloudtest"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// TestNextMove is what a move does next, as a table.
func TestNextMove(t *testing.T) {
	out := func(id, phase string, told bool) *moveOut { return &moveOut{ID: id, Phase: phase, Told: told} }
	goes, at := &fleet.MoveOrder{ID: "1"}, &fleet.MoveOrder{ID: "1", Address: "x"}
	cancel, comes := &fleet.MoveOrder{ID: "1", Cancel: true}, &fleet.MoveOrder{ID: "1", Come: true}
	for i, c := range []struct {
		r       record
		order   *fleet.MoveOrder
		running bool
		step    step
		ok      bool
	}{
		{running: true},
		{order: goes, running: true},
		{order: at, running: true, step: stepSend, ok: true},
		{order: goes, step: stepSend, ok: true},
		{order: cancel, running: true, step: stepSend, ok: true},
		{r: record{Out: out("1", fleet.MoveFailed, false)}, order: at, running: true},
		{r: record{Out: out("0", fleet.MoveFailed, false)}, order: at, running: true, step: stepSend, ok: true},
		{r: record{Out: out("1", fleet.MoveCopying, false)}, order: at, running: true, step: stepUnmove, ok: true},
		{r: record{Out: out("1", fleet.MoveCopying, false)}, step: stepUnmove, ok: true},
		{r: record{Out: out("1", fleet.MoveGone, false)}, running: true, step: stepLeave, ok: true},
		{r: record{Out: out("1", fleet.MoveGone, true)}, running: true, step: stepLeave, ok: true},
		{r: record{Out: out("1", fleet.MoveGone, false)}, step: stepLeave, ok: true},
		{r: record{Out: out("1", fleet.MoveGone, true)}, ok: true},
		{r: record{Out: out("0", fleet.MoveGone, true)}, order: comes, step: stepDelete, ok: true},
		{order: comes, step: stepReceive, ok: true},
		{r: record{Came: "1"}, order: comes, running: true},
		{r: record{In: &moveIn{ID: "1"}}, order: comes, step: stepReceive, ok: true},
		{r: record{In: &moveIn{ID: "1", Phase: inWhole}}, running: true, step: stepReceive, ok: true},
		{r: record{In: &moveIn{ID: "1", Phase: inCome}}, step: stepReceive, ok: true},
		{r: record{In: &moveIn{ID: "1", Phase: inFailed}}, order: comes, ok: true},
		{r: record{In: &moveIn{ID: "0", Phase: inFailed}}, order: comes, step: stepReceive, ok: true},
	} {
		c.r.Wanted.Move = c.order
		if step, ok := c.r.nextMove(c.running); step != c.step || ok != c.ok {
			t.Errorf("case %d: %q %v, want %q %v", i, step, ok, c.step, c.ok)
		}
		c.r.Wanted.Power = string(farm.PowerDeleted)
		if step := c.r.next(c.running); step != stepDelete {
			t.Errorf("case %d: wanted deleted, and next is %q", i, step)
		}
	}
}

// TestMoveToAnotherThanNamed: a host of the fleet that is not the one of the order gets nothing.
func TestMoveToAnotherThanNamed(t *testing.T) {
	ca, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, b := cloudtest.NewPeer(t, ca, "a"), cloudtest.NewPeer(t, ca, "b")
	config, err := b.TLS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := newMoveConn(conn.(*tls.Conn))
			if _, err := c.receive(moveDial); err == nil {
				c.send(moveLine{Word: wordOK})
			}
		}
	}()
	h := New(Options{Peers: a})
	for host, believed := range map[string]bool{"b": true, "c": false} {
		conn, err := h.dialMove(t.Context(), moveOut{Host: host, Name: host, Address: l.Addr().String()}, moveLine{})
		if (err == nil) != believed {
			t.Errorf("host %s: %v", host, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
