package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// The lease knows no time of day, so that no clock that jumps can make two leaders. The leader raises a counter, the
// heartbeat, whenever it keeps the lease. Another takes it over only after it has seen one and the same heartbeat for a
// whole ttl of its own monotonic clock, and then raises the epoch. A leader that was merely slow finds the other epoch:
// when it keeps the lease, and, by Fence, in each of its commits. Both look at the row under the lock that all writers
// hold, so that no commit of the old epoch follows the first of the new one.

// seenLease is what this process saw of the lease that another has.
type seenLease struct {
	mu               sync.Mutex
	mine             int64 // the epoch that this process took; 0: none
	epoch, heartbeat int64
	since            time.Time // by this process's monotonic clock; zero: nothing was seen yet
}

// Lead takes or keeps the lease of the loops for holder, for ttl. Epoch rises with each new holder; Tx.Fence checks it.
// A caller that leads must count ttl from before the call: it leads no longer than that without another call. The same
// holder takes its own lease back at once, with a new epoch: the name must be this server's alone. All servers must
// call with the same ttl, and more often than that.
func (s *Store) Lead(ctx context.Context, holder string, ttl time.Duration) (epoch int64, ok bool, err error) {
	err = s.locked(ctx, func(t *Tx) error {
		epoch, ok, err = s.leadIn(t, holder, ttl)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	if ok {
		s.lease.take(epoch)
	}
	return epoch, ok, nil
}

func (s *Store) leadIn(t *Tx, holder string, ttl time.Duration) (int64, bool, error) {
	var had string
	var epoch, heartbeat int64
	if err := t.row("SELECT holder, epoch, beat FROM lease WHERE id = 1").Scan(&had, &epoch, &heartbeat); err != nil {
		return 0, false, err
	}
	if had != "" && had != holder && !s.lease.stale(epoch, heartbeat, s.now(), ttl) {
		return epoch, false, nil
	}
	if had != holder || !s.lease.took(epoch) {
		epoch++
		if err := t.recountUsed(); err != nil {
			return 0, false, err
		}
	}
	_, err := t.exec("UPDATE lease SET holder = $1, epoch = $2, beat = beat + 1 WHERE id = 1", holder, epoch)
	return epoch, err == nil, err
}

// took reports whether this process took the lease in an epoch; take notes that, when it is committed.
func (l *seenLease) took(epoch int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mine == epoch
}

func (l *seenLease) take(epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mine = epoch
}

// stale reports whether nobody has kept the lease for ttl, as far as this process has seen.
func (l *seenLease) stale(epoch, heartbeat int64, now time.Time, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || l.epoch != epoch || l.heartbeat != heartbeat {
		l.epoch, l.heartbeat, l.since = epoch, heartbeat, now
		return false
	}
	return now.Sub(l.since) >= ttl
}

// Resign gives the lease back, so that another need not wait for its end.
func (s *Store) Resign(ctx context.Context, holder string) error {
	return s.locked(ctx, func(t *Tx) error {
		_, err := t.exec("UPDATE lease SET holder = '' WHERE id = 1 AND holder = $1", holder)
		return err
	})
}

// Fence fails with CodeNotLeader when the lease is another's by now.
func (t *Tx) Fence(epoch int64) error {
	now := t.shared.epoch
	if now == 0 {
		if err := t.row("SELECT epoch FROM lease WHERE id = 1").Scan(&now); err != nil {
			return err
		}
		t.shared.epoch = now
	}
	if now != epoch {
		return &farm.Error{Kind: farm.Conflict, Code: CodeNotLeader,
			Message: fmt.Sprintf("another server leads: epoch %d, not %d", now, epoch),
			Hint:    "nothing was done; the other one goes on"}
	}
	return nil
}

// locked runs do under the lock of all writers, without a revision of its own: nobody is woken.
func (s *Store) locked(ctx context.Context, do func(*Tx) error) error {
	var err error
	for range attempts {
		if err = s.lockedOnce(ctx, do); err == nil || !s.again(err) {
			break
		}
	}
	return s.explain(ctx, err)
}

func (s *Store) lockedOnce(ctx context.Context, do func(*Tx) error) error {
	tx, err := s.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	t := newTx(&sqlTx{ctx: ctx, asked: ctx, store: s, tx: tx, shared: &shared{}})
	if err := t.row("UPDATE farm SET revision = revision WHERE id = 1 RETURNING revision").Scan(
		&t.revision); err != nil {
		return err
	}
	if err := do(t); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return unsure{err}
	}
	return nil
}
