package hostlink

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// Silent reports whether a host has not been heard of for too long. A server that has just come up has heard of nobody,
// and waits; but a host that was silent already when hosts were last heard of at all is silent still.
func (s *hosts) Silent(h farm.Host) bool {
	now, seen := s.Now(), s.Seen(h)
	if now.Sub(seen) <= s.Silence {
		return false
	}
	return now.Sub(s.Since) > s.Silence || time.Unix(0, s.lastHeard.Load()).Sub(seen) > s.Silence
}

// SilentSince reports whether a host is silent that was heard of at a time, by the store.
func (s *hosts) SilentSince(host string, seen time.Time) bool {
	if heard := s.heard(host); heard.After(seen) {
		seen = heard // not written yet
	}
	return s.Silent(farm.Host{Seen: seen})
}

// Recall finds when any host was last heard of before this server came up.
func (s *hosts) Recall(ctx context.Context) error {
	return s.Store.View(ctx, func(t *store.Tx) error {
		all, err := t.HostsSeen()
		for _, h := range all {
			s.lastHeard.Store(max(s.lastHeard.Load(), h.At.UnixNano()))
		}
		return err
	})
}

// Seen is when any server heard of a host last, as far as this one knows.
func (s *hosts) Seen(h farm.Host) time.Time {
	if at := s.heard(h.ID); at.After(h.Seen) {
		return at
	}
	return h.Seen
}
