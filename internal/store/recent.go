package store

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/grange-project/grange/internal/farm"
)

// recent is the end of the change feed as far as this process has written it: those who follow the feed need not ask
// the database for what has just gone there, and the placer finds each new VM beside its change. What others have
// written is read from the database.
type recent struct {
	keep      int64 // revisions at most: older ones are not in the feed any more
	mu        sync.Mutex
	commits   map[int64]commit // by revision
	first     int64            // none is older
	last      int64            // none is newer
	remembers int              // changes in all commits
}

// commit is one transaction's part of the feed.
type commit struct {
	changes []Change
	entered map[string]*farm.VM // VMs that it inserted, by ID; nobody changes them
}

// maxRecent is how many changes are remembered: some megabytes, and seconds of a busy server. Followers are
// milliseconds behind.
const maxRecent = 4096

// add remembers a commit. Those of one process may come here in another order than they went to the database.
func (r *recent) add(revision int64, c commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.commits) == 0 {
		r.commits, r.first, r.last = map[int64]commit{}, revision, revision
	}
	r.commits[revision] = c
	r.first, r.last = min(r.first, revision), max(r.last, revision)
	for r.remembers += len(c.changes); r.first < r.last &&
		(r.remembers > maxRecent || r.last-r.first >= r.keep); r.first++ {
		r.remembers -= len(r.commits[r.first].changes)
		delete(r.commits, r.first)
	}
}

// since are the changes after a revision up to another one at most, as Store.Changes has them; ok is false when others
// have written the first of them, or it is too long ago.
func (r *recent) since(after, upTo int64, limit int) (changes []Change, to int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for to = after; to < min(upTo, r.last); to++ {
		c, known := r.commits[to+1]
		if !known || n > 0 && n+len(c.changes) > limit {
			break
		}
		n += len(c.changes)
	}
	changes = make([]Change, 0, n)
	for revision := after + 1; revision <= to; revision++ {
		changes = append(changes, r.commits[revision].changes...)
	}
	return changes, to, to > after
}

// maxLook is how many revisions onlyVMs looks at. Nobody who follows the feed is so far behind.
const maxLook = 1000

// onlyVMs reports that all changes after a revision up to another one are known, and are of VMs.
func (r *recent) onlyVMs(after, upTo int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if upTo-after > maxLook {
		return false
	}
	for revision := after + 1; revision <= upTo; revision++ {
		if c, known := r.commits[revision]; !known || !onlyVMs(c.changes) {
			return false
		}
	}
	return true
}

// Recent is Changes without asking the database; ok is false when it must be asked. What others have written it knows
// as Wait does.
func (s *Store) Recent(after int64, limit int) (changes []Change, upTo int64, ok bool) {
	if s.feed.seen() <= after {
		return nil, after, true
	}
	return s.recent.since(after, math.MaxInt64, limit)
}

// Inserted is the VM that a change of the feed is of as this process inserted it with that change; nil when it did not,
// or long ago. Nobody may write to what it points to.
func (s *Store) Inserted(c Change) *farm.VM {
	s.recent.mu.Lock()
	defer s.recent.mu.Unlock()
	return s.recent.commits[c.Revision].entered[c.ID]
}

// inOrder puts the changes of one revision into the order in which the database lists them.
func inOrder(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.ID, b.ID),
			strings.Compare(a.Host, b.Host))
	})
}
