package hostlink

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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

// hosts are those that this server hears of, and when it did.
type hosts struct {
	*Options
	Since time.Time // this server is up
	// when any host was last heard of before this server came up, in nanoseconds since 1970; 0: not known
	lastHeard atomic.Int64

	mu   sync.Mutex
	byID map[string]*link
}

// sighting is when a host was heard of, and how far its clock was off.
type sighting struct {
	id    string
	at    time.Time
	clock time.Duration
}

// KeepSeen writes when hosts were heard of, until ctx ends, and once more then.
func (s *hosts) KeepSeen(ctx context.Context) {
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

func (s *hosts) WriteSeen(ctx context.Context) {
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
			s.Log.Warn("cannot write when hosts were last seen", "hosts", len(batch), "error", err)
			return
		}
	}
}

// sightings takes those that the store does not have yet.
func (s *hosts) sightings() []sighting {
	s.mu.Lock()
	links := make([]*link, 0, len(s.byID))
	for _, l := range s.byID {
		links = append(links, l)
	}
	s.mu.Unlock()
	var new []sighting
	for _, l := range links {
		if at, clock, ok := l.pulse.take(); ok {
			new = append(new, sighting{l.id, at, clock})
		}
	}
	return new
}

// heard is when this server heard of a host last; the zero time: never.
func (s *hosts) heard(host string) time.Time {
	l := s.linkNow(host)
	if l == nil {
		return time.Time{}
	}
	return l.pulse.last()
}

// Unheard is why this server does not listen to a host's agent; nil: it does, or the agent never asked.
func (s *hosts) Unheard(host string) *farm.Error {
	l := s.linkNow(host)
	if l == nil {
		return nil
	}
	return l.pulse.unheard()
}

// unlink drops what is kept of a host that is not enrolled any more.
func (s *hosts) unlink(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// linkNow is what is kept of a host; nil: nothing, since this server was started.
func (s *hosts) linkNow(host string) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[host]
}

// link is what is kept of a host that HostAt lets in.
func (s *hosts) link(id string) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.byID[id]
	if !ok {
		l = &link{id: id}
		s.byID[id] = l
	}
	return l
}

// forgetLink has the host's row read again at its next request.
func (s *hosts) forgetLink(id string) {
	if l := s.linkNow(id); l != nil {
		l.mu.Lock()
		l.at = 0
		l.mu.Unlock()
	}
}
