package uplink_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/usage"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/uplink"
)

// TestUsageOfRestored: a server that was restored from a backup is brought the records that it had got since, by a host
// that has no new one.
func TestUsageOfRestored(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	h.stop()
	desk, err := usage.Open(usage.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Hardware: func() string { return "amd-1s" }, Boot: func() string { return "b1" },
		Traffic: func(int) (in, out uint64, ok bool) { return 0, 0, false },
		Keep:    func() time.Duration { return time.Hour }})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{api.NewID(), api.NewID()} {
		desk.Begin(job, api.Usage{Kind: api.UsageJob, Job: job, User: "eva", Cores: 1}, 0, 0)
		desk.End(job, api.EndedLeft)
	}
	l, err := uplink.New(uplink.Options{Dir: h.dir, Host: h.Host, Usage: desk,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { l.Run(ctx) })
	t.Cleanup(run.Wait)
	t.Cleanup(cancel)
	records := func() (ids []string) {
		page, err := s.Usage.Records(t.Context(), root, fleet.UsageQuery{From: "2026-01", To: "2099-12"}, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			ids = append(ids, r.ID)
		}
		return ids
	}
	s.eventually("both records", func() bool { return len(records()) == 2 })
	had := records()
	s.stop()
	s.update(func(tx *store.Tx) error { return tx.DeleteUsage(had[0]) })
	s.update(func(tx *store.Tx) error { return tx.PutSetting(store.SettingBooks, []byte(`"restored"`)) })
	s.start()
	s.eventually("both again", func() bool { return len(records()) == 2 })
}
