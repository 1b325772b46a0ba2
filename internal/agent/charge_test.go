package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/program"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

// TestExceptedUser may hold more than others by an exception that names it, unless the name service is down.
func TestExceptedUser(t *testing.T) {
	down := func(context.Context, program.Call) ([]byte, error) { return nil, errors.New("no answer") }
	c, err := config.ParseAgent([]byte(
		"[limits]\ncpus = \"16\"\n[[limits.except]]\nusers = [\"dora\"]\ncpus = \"100%\"\n"), "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		run  program.Run
		uid  uint32
		want farm.Code
	}{
		"excepted":     {ldap, 70001, ""},
		"another":      {ldap, 70002, ledger.CodeUserLimit},
		"nobody knows": {down, 70001, ledger.CodeUserLimit},
	} {
		t.Run(name, func(t *testing.T) {
			a := joined(&Agent{ctx: t.Context(), names: names.New(x.run), log: slog.New(slog.DiscardHandler)})
			l := ledger.New(topologytest.CERN2650v2(), numa.Reserve{}, ledger.Host{})
			l.SetLimits(c.Limits, 0)
			who := a.requests().excepted(Caller{UID: x.uid, GID: 7000})
			l.SetCharge("a", ledger.Charge{UID: x.uid, Limited: true, Who: who})
			if _, err := l.Claim(t.Context(), "a", "a", request(20, "0-31"), true, quiet); x.want == "" && err != nil ||
				x.want != "" && !farm.IsCode(err, x.want) {
				t.Errorf("%v; want %q", err, x.want)
			}
		})
	}
}
