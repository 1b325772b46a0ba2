package hostlink

import (
	"context"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

const (
	// saveSeen is how often the times at which hosts were heard of are written to the store: all in a few transactions,
	// with no change of the feed.
	saveSeen = 10 * time.Second
	// seenBatch bounds one such transaction, for writers wait for each other.
	seenBatch = 1000
)

// sighting is when a host was heard of, and how far its clock was off.
type sighting struct {
	id    string
	at    time.Time
	clock time.Duration
}

// KeepSeen writes when hosts were heard of, until ctx ends, and once more then.
func (s *Links) KeepSeen(ctx context.Context) {
	tick := time.NewTicker(saveSeen)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.WriteSeen(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			s.WriteSeen(ctx)
		}
	}
}

func (s *Links) WriteSeen(ctx context.Context) {
	for batch := range slices.Chunk(s.sightings(), seenBatch) {
		_, err := s.Store.Update(ctx, func(t *store.Tx) error {
			for _, seen := range batch {
				if err := t.SetHostSeen(seen.id, seen.at, seen.clock); err != nil && !action.Missing(err) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.Log.Warn("not written when hosts were heard of", "hosts", len(batch), "error", err)
			return
		}
	}
}

// sightings takes those that the store does not have yet.
func (s *Links) sightings() []sighting {
	s.mu.Lock()
	links := make([]*link, 0, len(s.hosts))
	for _, l := range s.hosts {
		links = append(links, l)
	}
	s.mu.Unlock()
	var new []sighting
	for _, l := range links {
		l.mu.Lock()
		if l.unsaved {
			new = append(new, sighting{l.id, l.heard.UTC(), l.clock})
			l.unsaved = false
		}
		l.mu.Unlock()
	}
	return new
}

// heard is when this server heard of a host last; the zero time: never.
func (s *Links) heard(host string) time.Time {
	l := s.linkNow(host)
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// Unheard is why this server does not listen to a host's agent; nil: it does, or the agent never asked.
func (s *Links) Unheard(host string) *farm.Error {
	l := s.linkNow(host)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// linkNow is what is kept of a host; nil: nothing, since this server was started.
func (s *Links) linkNow(host string) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[host]
}
