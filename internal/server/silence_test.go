package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// endAfter ends a context at the so many-th line of a log.
type endAfter struct {
	slog.Handler
	left *int
	end  func()
}

func (e endAfter) Enabled(context.Context, slog.Level) bool { return true }

func (e endAfter) Handle(context.Context, slog.Record) error {
	if *e.left--; *e.left == 0 {
		e.end()
	}
	return nil
}

// When all hosts fall silent at once, each is told of once, though what is written fails in the middle.
func TestAllFallSilent(t *testing.T) {
	l := newLab(t)
	const many = 2*upkeepBatch + 50
	l.update(func(tx *store.Tx) (err error) {
		for n := range many {
			name := fmt.Sprintf("node-%03d", n)
			err = errors.Join(err, tx.InsertHost(farm.Host{ID: "id-" + name, Name: name, Cell: "east",
				Seen: l.clock()}))
		}
		return err
	})
	epoch := l.epoch()
	if err := l.upkeep.silences(t.Context(), epoch); err != nil {
		t.Fatal(err)
	}
	l.pass(l.Links.Silence + time.Second)
	var from int64
	l.view(func(tx *store.Tx) error {
		from = tx.Revision()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	left := upkeepBatch + 10
	l.log = slog.New(endAfter{slog.DiscardHandler, &left, cancel})
	if err := l.upkeep.silences(ctx, epoch); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := l.told(action.SilentHost); len(n) != upkeepBatch {
		t.Errorf("%d hosts were told of when it failed", len(n))
	}
	for range 2 {
		if err := l.upkeep.silences(t.Context(), epoch); err != nil {
			t.Fatal(err)
		}
	}
	told := l.told(action.SilentHost)
	if slices.Sort(told); len(told) != many || len(slices.Compact(told)) != many {
		t.Errorf("%d hosts were told of", len(told))
	}
	changes, _, err := l.store.Changes(t.Context(), from, 10*many)
	if err != nil || len(changes) != many {
		t.Errorf("%d changes: %v", len(changes), err)
	}
	l.update(func(tx *store.Tx) error { return tx.DeleteHost("id-node-000") })
	for _, v := range []string{"id-node-001", "id-node-002"} {
		l.update(func(tx *store.Tx) error { return tx.SetHostSeen(v, l.clock(), 0) })
	}
	if err := l.upkeep.silences(t.Context(), epoch); err != nil {
		t.Fatal(err)
	}
	if back := l.told(action.BackHost); strings.Join(back, " ") != "node-002 node-001" {
		t.Error(back)
	}
}

// told are the hosts that the audit log has of an action of the server's, the newest first.
func (l *lab) told(what policy.Action) (hosts []string) {
	l.t.Helper()
	for _, e := range l.entries(string(what), action.Done) {
		hosts = append(hosts, e.Target)
	}
	return hosts
}
