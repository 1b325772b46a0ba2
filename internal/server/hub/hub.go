// Package hub wakes those in this process who wait for a change of the store.
package hub

import (
	"context"
	"slices"
	"sync"

	"github.com/grange-project/grange/internal/store"
)

// Everything is the key of those who wait for any change.
const Everything = ""

// Hub wakes those in this process who wait for a change of the store, whoever wrote it. It reads the change feed once
// for all of them: a waiter costs a channel that it shares with the others of its key, and no reader of the database.
type Hub struct {
	keyOf func(store.Change) (key string, all bool)

	mu     sync.Mutex
	since  int64 // everybody is to look who has seen no more than this
	lost   int64 // changes of any key up to here are forgotten
	upTo   int64 // changes up to here are in keys
	keys   map[string]int64
	waking map[string]chan struct{}
	called map[string][]*Waiter
}

// Waiter is one who is called instead of waiting on a channel: that would take a goroutine.
type Waiter struct{ Wake func() }

// New makes a hub of keys that keyOf finds; all is set for a change that concerns all who wait, whatever their key.
func New(keyOf func(store.Change) (key string, all bool)) *Hub {
	return &Hub{keyOf: keyOf, keys: map[string]int64{}, waking: map[string]chan struct{}{},
		called: map[string][]*Waiter{}}
}

// Revision is the one up to which the hub knows all changes.
func (h *Hub) Revision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.upTo
}

// Wait returns when key changed after a revision, or ctx ended; the caller looks at what it wants to know again, and
// may find it as it was. Keys are IDs of hosts, whose wanted list changed, and everything.
func (h *Hub) Wait(ctx context.Context, key string, after int64) error {
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
func (h *Hub) look(key string, after int64) (wake <-chan struct{}, changed bool) {
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

// Changed reports whether key changed after a revision.
func (h *Hub) Changed(key string, after int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved(key, after)
}

// moved is changed, of a hub that is locked.
func (h *Hub) moved(key string, after int64) bool { return after < h.since || h.keys[key] > after }

// Enter has w called once when key changes, with the hub locked. It tells false, and does nothing, if key changed after
// the revision.
func (h *Hub) Enter(key string, after int64, w *Waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moved(key, after) {
		return false
	}
	h.called[key] = append(h.called[key], w)
	return true
}

// Leave takes back an enter.
func (h *Hub) Leave(key string, w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.called[key], func(other *Waiter) bool { return other == w })
	if h.called[key] = left; len(left) == 0 {
		delete(h.called, key)
	}
}

// Tell enters changes of the feed up to a revision.
func (h *Hub) Tell(changes []store.Change, upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		own, all := h.keyOf(c)
		for _, key := range []string{Everything, own} {
			h.keys[key] = max(h.keys[key], c.Revision)
			h.wake(key)
		}
		if all {
			h.all(c.Revision)
		}
	}
	h.upTo = max(h.upTo, upTo)
}

// Miss enters that anything may have changed up to a revision: the feed does not reach back.
func (h *Hub) Miss(upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upTo, h.lost = max(h.upTo, upTo), max(h.lost, upTo)
	h.all(upTo)
}

// Own reports whether key itself may have changed after a revision, and not only what concerns all; upTo is the
// revision up to which that is known.
func (h *Hub) Own(key string, after int64) (changed bool, upTo int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return after < h.lost || h.keys[key] > after, h.upTo
}

// OfAll is the revision of the last change that concerned all.
func (h *Hub) OfAll() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// all wakes everybody. Those who have seen this revision wait again.
func (h *Hub) all(revision int64) {
	h.since = max(h.since, revision)
	for key := range h.waking {
		h.wake(key)
	}
	for key := range h.called {
		h.wake(key)
	}
}

func (h *Hub) wake(key string) {
	if c, ok := h.waking[key]; ok {
		close(c)
		delete(h.waking, key)
	}
	for _, w := range h.called[key] {
		w.Wake()
	}
	delete(h.called, key)
}
