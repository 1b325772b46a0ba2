package server

import (
	"context"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
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

// keepSeen writes when hosts were heard of, until ctx ends, and once more then.
func (s *Server) keepSeen(ctx context.Context) {
	tick := time.NewTicker(saveSeen)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.writeSeen(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			s.writeSeen(ctx)
		}
	}
}

func (s *Server) writeSeen(ctx context.Context) {
	for batch := range slices.Chunk(s.sightings(), seenBatch) {
		_, err := s.store.Update(ctx, func(t *store.Tx) error {
			for _, seen := range batch {
				if err := t.SetHostSeen(seen.id, seen.at, seen.clock); err != nil && !missing(err) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.log.Warn("not written when hosts were heard of", "hosts", len(batch), "error", err)
			return
		}
	}
}

// sightings takes those that the store does not have yet.
func (s *Server) sightings() []sighting {
	s.links.mu.Lock()
	links := make([]*link, 0, len(s.links.hosts))
	for _, l := range s.links.hosts {
		links = append(links, l)
	}
	s.links.mu.Unlock()
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
func (s *Server) heard(host string) time.Time {
	l := s.linkNow(host)
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// unheard is why this server does not listen to a host's agent; nil: it does, or the agent never asked.
func (s *Server) unheard(host string) *farm.Error {
	l := s.linkNow(host)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// linkNow is what is kept of a host; nil: nothing, since this server was started.
func (s *Server) linkNow(host string) *link {
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	return s.links.hosts[host]
}
