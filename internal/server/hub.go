package server

import (
	"context"
	"slices"
	"sync"

	"github.com/grange-project/grange/internal/store"
)

// everything is the key of those who wait for any change.
const everything = ""

// authorityKey is the key of the fleet's authorities. No host has such an ID.
const authorityKey = "the fleet's authorities"

// hub wakes those in this process who wait for a change of the store, whoever wrote it. It reads the change feed once
// for all of them: a waiter costs a channel that it shares with the others of its key, and no reader of the database.
type hub struct {
	mu     sync.Mutex
	since  int64 // everybody is to look who has seen no more than this
	lost   int64 // changes of any key up to here are forgotten
	upTo   int64 // changes up to here are in keys
	keys   map[string]int64
	waking map[string]chan struct{}
	called map[string][]*waiter
}

// waiter is one who is called instead of waiting on a channel: that would take a goroutine.
type waiter struct{ wake func() }

func newHub() *hub {
	return &hub{keys: map[string]int64{}, waking: map[string]chan struct{}{}, called: map[string][]*waiter{}}
}

// revision is the one up to which the hub knows all changes.
func (h *hub) revision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.upTo
}

// wait returns when key changed after a revision, or ctx ended; the caller looks at what it wants to know again, and
// may find it as it was. Keys are IDs of hosts, whose wanted list changed, and everything.
func (h *hub) wait(ctx context.Context, key string, after int64) error {
	for {
		wake, changed := h.look(key, after)
		if changed {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// look reports whether key changed after a revision, and otherwise what closes when it may have.
func (h *hub) look(key string, after int64) (wake <-chan struct{}, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moved(key, after) {
		return nil, true
	}
	c, ok := h.waking[key]
	if !ok {
		c = make(chan struct{})
		h.waking[key] = c
	}
	return c, false
}

// changed reports whether key changed after a revision.
func (h *hub) changed(key string, after int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved(key, after)
}

// moved is changed, of a hub that is locked.
func (h *hub) moved(key string, after int64) bool { return after < h.since || h.keys[key] > after }

// enter has w called once when key changes, with the hub locked. It tells false, and does nothing, if key changed after
// the revision.
func (h *hub) enter(key string, after int64, w *waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moved(key, after) {
		return false
	}
	h.called[key] = append(h.called[key], w)
	return true
}

// leave takes back an enter.
func (h *hub) leave(key string, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.called[key], func(other *waiter) bool { return other == w })
	if h.called[key] = left; len(left) == 0 {
		delete(h.called, key)
	}
}

// tell enters changes of the feed up to a revision.
func (h *hub) tell(changes []store.Change, upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		for _, key := range []string{everything, keyOf(c)} {
			h.keys[key] = max(h.keys[key], c.Revision)
			h.wake(key)
		}
		if ofAllHosts(c) {
			h.all(c.Revision)
		}
	}
	h.upTo = max(h.upTo, upTo)
}

// miss enters that anything may have changed up to a revision: the feed does not reach back.
func (h *hub) miss(upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upTo, h.lost = max(h.upTo, upTo), max(h.lost, upTo)
	h.all(upTo)
}

// own reports whether key itself may have changed after a revision, and not only what concerns all; upTo is the
// revision up to which that is known.
func (h *hub) own(key string, after int64) (changed bool, upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return after < h.lost || h.keys[key] > after, h.upTo
}

// ofAll is the revision of the last change that concerned all.
func (h *hub) ofAll() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// all wakes everybody. Those who have seen this revision wait again.
func (h *hub) all(revision int64) {
	h.since = max(h.since, revision)
	for key := range h.waking {
		h.wake(key)
	}
	for key := range h.called {
		h.wake(key)
	}
}

func (h *hub) wake(key string) {
	if c, ok := h.waking[key]; ok {
		close(c)
		delete(h.waking, key)
	}
	for _, w := range h.called[key] {
		w.wake()
	}
	delete(h.called, key)
}

// keyOf is the key of a change beside everything: the host whose wanted list it is part of, or authorityKey.
func keyOf(c store.Change) string {
	switch {
	case c.Kind == store.KindHost:
		return c.ID
	case c.Kind == store.KindSetting && c.ID == AuthoritySetting:
		return authorityKey
	}
	return c.Host
}

// ofAllHosts tells changes that every host's wanted list has parts of: networks by their gateways, the settings of
// hosts.
func ofAllHosts(c store.Change) bool {
	return c.Kind == store.KindNetwork || c.Kind == store.KindSetting && c.ID == settingHosts
}

// wait returns when the wanted list of a host (its ID), or everything, changed after a revision, or ctx ends.
func (s *Server) wait(ctx context.Context, key string, after int64) error {
	return s.hub.wait(ctx, key, after)
}
