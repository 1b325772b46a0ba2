package store

import (
	"sync/atomic"
	"time"
)

// Written is what was written so far.
type Written struct {
	Waiting         int   // Updates that wait
	Writes, Commits int64 // Updates that were committed, several at a time
	Committing      time.Duration
}

// written counts.
type written struct{ writes, commits, committing atomic.Int64 }

func (w *written) commit(writes int, took time.Duration) {
	w.writes.Add(int64(writes))
	w.commits.Add(1)
	w.committing.Add(int64(took))
}

// Written returns at once, whatever the database does.
func (s *Store) Written() Written {
	s.queue.mu.Lock()
	waiting := len(s.queue.ahead) + len(s.queue.waiting)
	s.queue.mu.Unlock()
	w := &s.written
	return Written{waiting, w.writes.Load(), w.commits.Load(), time.Duration(w.committing.Load())}
}

// VMCount is how many VMs of a cell are in a state, as their hosts reported last.
type VMCount struct {
	Cell   string
	Placed bool // a host has them
	State  string
	VMs    int
}

// VMsByState counts all VMs in the database itself: there may be hundreds of thousands.
func (t vmRows) VMsByState() (all []VMCount, err error) {
	err = t.each(func(r scanner) error {
		var c VMCount
		var placed int
		err := r.Scan(&c.Cell, &placed, &c.State, &c.VMs)
		c.Placed = placed == 1
		all = append(all, c)
		return err
	}, `SELECT cell, CASE WHEN host = '' THEN 0 ELSE 1 END AS placed, state, COUNT(*) FROM vms
		GROUP BY 1, 2, 3`)
	return all, err
}
