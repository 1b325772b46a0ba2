package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// gate is a host's place in a batch system.
type gate struct {
	told []string
	err  error
}

func (g *gate) Close(_ context.Context, reason string) error {
	g.told = append(g.told, "close: "+reason)
	return g.err
}

func (g *gate) Open(context.Context) error {
	g.told = append(g.told, "open")
	return g.err
}

func breakerAgent(t *testing.T, g Gate, state string) *Agent {
	t.Helper()
	a := joined(&Agent{cfg: config.Agent{StateDir: state}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		ctx: t.Context()})
	a.breakers = newBreakers(g)
	a.breakers.trying = true // no VM can be tried here
	return a
}

// breakHost has the host fail for several users until it backs off.
func breakHost(t *testing.T, a *Agent) {
	t.Helper()
	for i := range breaker.Defaults.Failures {
		ticket, err := a.breakers.set.Admit(time.Now(), breaker.Start{Image: "sl9", User: []string{"eva", "max"}[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		a.breakers.set.Failed(time.Now(), ticket, breaker.TheHost, "the disk is full")
	}
}

func heal(a *Agent) {
	a.breakers.set.Started(time.Now(), &breaker.Ticket{Start: breaker.Start{Image: "micro", Own: true}})
}

// TestGate: the host closes itself with the reason, once; while the batch system does not answer it is told again; it
// opens when the host has healed.
func TestGate(t *testing.T) {
	g := &gate{}
	a := breakerAgent(t, g, t.TempDir())
	a.healing.healOnce(time.Now())
	breakHost(t, a)
	g.err = errors.New("no answer")
	a.healing.healOnce(time.Now())
	g.err = nil
	a.healing.healOnce(time.Now())
	a.healing.healOnce(time.Now())
	if off := a.healing.backOffs(); len(off) != 1 || off[0].Kind != "host" || !off[0].Closed ||
		off[0].Last != "the disk is full" {
		t.Errorf("%+v", off)
	}
	heal(a)
	g.err = errors.New("no answer")
	a.healing.healOnce(time.Now())
	g.err = nil
	a.healing.healOnce(time.Now())
	a.healing.healOnce(time.Now())
	const closing = "close: VMs do not start here: the disk is full"
	if want := []string{closing, closing, "open", "open"}; !slices.Equal(g.told, want) {
		t.Errorf("%q, not %q", g.told, want)
	}
}

// TestGateRestart: an agent that closed its host and was restarted still opens it; one that did not, opens nothing.
func TestGateRestart(t *testing.T) {
	state, g := t.TempDir(), &gate{}
	a := breakerAgent(t, g, state)
	breakHost(t, a)
	a.healing.healOnce(time.Now())

	ctx, cancel := context.WithCancel(t.Context())
	b := breakerAgent(t, g, state)
	b.ctx = ctx
	cancel() // heal looks once
	b.healing.heal()
	if off := b.healing.backOffs(); len(off) != 1 || !off[0].Closed || off[0].Last != "the disk is full" {
		t.Fatalf("a restarted agent forgot: %+v", off)
	}
	heal(b)
	b.ctx = t.Context()
	g.err = &farm.Error{Kind: farm.Conflict, Code: farm.CodeNotOurs} // an administrator closed it as well: so be it
	b.healing.healOnce(time.Now())
	g.err = nil
	told := len(g.told)
	c := breakerAgent(t, g, state)
	c.ctx = ctx
	c.healing.heal()
	if len(g.told) != told || len(c.healing.backOffs()) > 0 {
		t.Errorf("after all was well: %q", g.told[told:])
	}
}

func TestBlame(t *testing.T) {
	for _, c := range []struct {
		err  error
		want breaker.Blame
	}{
		{errCallerGone, breaker.Nobody},
		{context.Canceled, breaker.Nobody},
		{&farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig}, breaker.Nobody},
		{&farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage}, breaker.Nobody},
		{&farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoRoom}, breaker.Nobody},
		{&farm.Error{Kind: farm.Denied, Code: farm.CodePolicy}, breaker.Nobody},
		{fmt.Errorf("attempt 3: %w", &farm.Error{Kind: farm.Unavailable, Code: machine.CodeGuestSilent}),
			breaker.Unclear},
		{&farm.Error{Kind: farm.Conflict, Code: farm.CodeBadImage}, breaker.Unclear},
		{&farm.Error{Kind: farm.Unavailable, Code: farm.CodeDiskFull}, breaker.TheHost},
		{&farm.Error{Kind: farm.Unavailable, Code: hyper.CodeRefused}, breaker.TheHost},
		{&farm.Error{Kind: farm.Invalid, Code: hyper.CodeRefused}, breaker.Unclear},
	} {
		if got := machine.BlameFor(c.err); got != c.want {
			t.Errorf("%v: %v, not %v", c.err, got, c.want)
		}
	}
}
