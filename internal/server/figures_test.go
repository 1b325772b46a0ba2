package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/history"
	"github.com/grange-project/grange/internal/store"
)

// scrape returns what a scraper gets.
func scrape(t testing.TB, s *Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Meter.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

// fleetOf is a server on a database with a cell and so many hosts, each with a VM.
func fleetOf(t testing.TB, n int) *Server {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := New(Options{Store: st, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		URL: "https://server.example.org", CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), Version: "1"})
	if _, err := s.Links.Authorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = st.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()); err != nil {
			return err
		}
		for i := range n {
			h := farm.Host{ID: fmt.Sprint("host-", i), Name: fmt.Sprintf("node-%d", i), Cell: "east", Seen: now,
				MachineID: fmt.Sprint("machine-", i)}
			if err := tx.InsertHost(h); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScrapeDoesNotGrow: what a server exports has as many series with many hosts as with few.
func TestScrapeDoesNotGrow(t *testing.T) {
	few, many := scrape(t, fleetOf(t, 3)), scrape(t, fleetOf(t, 300))
	for n, text := range map[int]string{3: few, 300: many} {
		want := fmt.Sprintf(`grange_server_hosts{cell="east",state="open"} %d`, n)
		if !strings.Contains(text, want) || !strings.Contains(text, `source_up{source="fleet"} 1`) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if a, b := strings.Count(few, "\ngrange_"), strings.Count(many, "\ngrange_"); a != b || a > 200 {
		t.Errorf("%d series of 3 hosts, %d of 300", a, b)
	}
}

// TestWhoMayScrape: figures of the fleet and its history are for those who may read all of it.
func TestWhoMayScrape(t *testing.T) {
	l := newLab(t)
	for name, who := range map[string]farm.Identity{"site": site, "root": root, "ann": ann, "eve": eve, "nobody": {}} {
		may := name == "site" || name == "root"
		if _, err := l.Metrics(t.Context(), who); (err == nil) != may {
			t.Errorf("%s scrapes: %v", name, err)
		}
		if _, err := l.History(t.Context(), who, history.Query{Since: time.Hour}); (err == nil) != may {
			t.Errorf("%s reads the history: %v", name, err)
		}
	}
}

// TestHistoryIsNoted: a pass of the loop enters the figures of the fleet and of its cells.
func TestHistoryIsNoted(t *testing.T) {
	s := fleetOf(t, 3)
	if err := s.note(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	a, err := s.History(t.Context(), root, history.Query{Series: []string{"hosts.open", "cells.east.hosts.*"},
		Since: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hosts.open", "cells.east.hosts.open"} {
		if v := a.Series[name]; len(v) != 2 || v[1] != 3 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// BenchmarkScrape is of a server with 10,000 hosts. Each scrape reads the database: they are a second apart in earnest.
func BenchmarkScrape(b *testing.B) {
	s := fleetOf(b, 10_000)
	for b.Loop() {
		if _, err := s.figures(context.Background()); err != nil {
			b.Fatal(err)
		}
		scrape(b, s)
	}
}
