package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/internal/store"
)

// One of two servers leads; when it ends the other takes over at once, and when it is cut off from the store, after the
// lease.
func TestLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "farm.db")
		start := func(url string) (s *Server, stop func()) {
			st, err := store.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			s = New(Options{Store: st, Log: slog.New(slog.DiscardHandler), URL: url})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return s, func() {
				cancel()
				all.Wait()
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		a, stopA := start("https://a")
		time.Sleep(time.Second)
		b, stopB := start("https://b")
		time.Sleep(time.Minute)
		if !a.leads.Load() || b.leads.Load() {
			t.Fatalf("a leads: %v, b leads: %v", a.leads.Load(), b.leads.Load())
		}
		stopA()
		time.Sleep(leaseKeep + time.Second)
		if a.leads.Load() || !b.leads.Load() {
			t.Errorf("a leads: %v, b leads: %v", a.leads.Load(), b.leads.Load())
		}
		stopB()
	})
}

// A loop that fails is begun anew, later each time, and at once again after it has worked for long.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		var runs atomic.Int32
		go s.keep(ctx, 0, loop{"test", func(ctx context.Context, _ int64) error {
			if runs.Add(1) == 10 {
				time.Sleep(time.Hour)
			}
			return errors.New("no")
		}})
		for _, c := range []struct {
			after time.Duration
			want  int32
		}{{500 * time.Millisecond, 1}, {time.Second, 2}, {2 * time.Second, 3}, {4 * time.Second, 4}, {5 * time.Minute,
			10}, {time.Hour, 11}, {3 * time.Second, 12}} {
			time.Sleep(c.after)
			if got := runs.Load(); got < c.want {
				t.Errorf("%d runs after %v, want %d", got, c.after, c.want)
			}
		}
		cancel()
		synctest.Wait()
	})
}
