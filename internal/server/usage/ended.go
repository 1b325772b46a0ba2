package usage

import (
	"slices"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/usage"
)

// ended is how far a batch system has been read.
type ended struct {
	Cursor batch.Cursor `json:"cursor,omitempty"`
	Since  time.Time    `json:"since"` // what ended before is not read: a batch system remembers years
	// Nodes are those of the hosts whose jobs were counted, in order; nil: a release before did not note them.
	Nodes []string `json:"nodes"`
	Again again    `json:"again,omitzero"`
}

// again is the last time that a batch system was read from an earlier place on, for hosts that had joined.
type again struct {
	From        time.Time `json:"from"` // what ended before is left out
	Began, Done time.Time // Done is zero while it is under way
}

// againPause is how much longer than the last such reading the next one waits: a batch system is not asked for a whole
// month all the time while hosts join one after the other.
const againPause = 20

// join has the batch system be read again from the first open month on when there are nodes whose jobs were passed
// over. Jobs that were counted before replace themselves. closed is the last closed month, or "".
func (e *ended) join(nodes []string, closed string, now time.Time) {
	fresh := e.Nodes == nil
	for _, name := range nodes {
		_, counted := slices.BinarySearch(e.Nodes, name)
		fresh = fresh || !counted
	}
	switch took := e.Again.Done.Sub(e.Again.Began); {
	case !fresh:
		e.Nodes = nodes
	case e.Again.underWay() || now.Before(e.Again.Done.Add(againPause*took)):
	default:
		e.Nodes, e.Cursor, e.Again = nodes, "", again{From: e.Since, Began: now}
		if month, err := usage.ParseMonth(closed); err == nil && month.AddDate(0, 1, 0).After(e.Since) {
			e.Again.From = month.AddDate(0, 1, 0)
		}
	}
}

func (a again) underWay() bool { return !a.Began.IsZero() && a.Done.IsZero() }

// from is the earliest end of jobs that are counted now.
func (e *ended) from() time.Time {
	if e.Again.underWay() {
		return e.Again.From
	}
	return e.Since
}

// finish notes that all was read that there is.
func (e *ended) finish(now time.Time) {
	if e.Again.underWay() {
		e.Again.Done = now
	}
}
