package store

import (
	"slices"
	"sync"
)

// kept is all small things of a kind, as they were decoded last: a network has as many names as a site has machines,
// and is asked for with each new VM and each list of a host.
type kept[T any] struct {
	mu             sync.Mutex
	rows, revision int64 // of what is kept: how many there were, and the last that was written
	all            []T
}

// list is all as the transaction sees them. The slice is the caller's, and what is in its elements is everybody's:
// nobody changes it.
//
// The number and the highest revision tell one committed state from all others: whatever is written gets a higher
// revision than all that is there, and what is only deleted makes them fewer. What is not committed is not kept, for
// its revision may be given again.
func (k *kept[T]) list(t *sqlTx, of noun[T]) ([]T, error) {
	var rows, revision int64
	if err := t.row("SELECT COUNT(*), COALESCE(MAX(revision), 0) FROM objects WHERE kind = $1",
		string(of.kind)).Scan(&rows, &revision); err != nil {
		return nil, err
	}
	if all, ok := k.get(rows, revision); ok {
		return all, nil
	}
	all, err := of.list(t, "")
	if err == nil && revision < t.revision-int64(len(t.shared.written)) {
		k.put(rows, revision, slices.Clone(all))
	}
	return all, err
}

func (k *kept[T]) get(rows, revision int64) ([]T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows != rows || k.revision != revision {
		return nil, false
	}
	return slices.Clone(k.all), true
}

func (k *kept[T]) put(rows, revision int64, all []T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows, k.revision, k.all = rows, revision, all
}
