// Package lookups asks batch systems what the kernel does not know of their jobs, and remembers the answers for a
// moment.
package lookups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Ask asks a batch system what the kernel does not know of one of its jobs, of which pid is a process: account,
// queue and end; CPUs and memory where a has none. What stays empty the job does not have. It must not ask anything
// that the job's user could answer. errors.ErrUnsupported: there is no way to ask.
type Ask func(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error)

// Desk remembers for a moment what batch systems told: all tasks of a job ask at the same time, and one of them asks
// for all. Of jobs that do not get an answer there may be hundreds, each asking again; so that they are not hundreds of
// commands for a batch system in trouble, failures are remembered as well, and few ask at a time.
type Desk struct {
	ask Ask // nil: nobody to ask

	mu     sync.Mutex
	known  map[string]*Told
	asking chan struct{} // as many as ask
}

// Told is an answer.
type Told struct {
	farm.Allotment
	err  error
	at   time.Time
	done chan struct{} // closed when the above are there
}

const (
	// as Slurm's own MessageTimeout; while it is away its commands try again for longer
	lookupTimeout = 10 * time.Second
	lookupFresh   = time.Minute
	lookupAgain   = 5 * time.Second // after a failure
	lookupsAtOnce = 4
)

// New returns a desk that has asked nothing yet; nil: there is nobody to ask.
func New(ask Ask) *Desk { return &Desk{ask: ask} }

// Of is what the batch system says of a job, of which pid is a process.
func (l *Desk) Of(ctx context.Context, a farm.Allotment, pid int) (*Told, error) {
	if l.ask == nil {
		return nil, fmt.Errorf("this agent has no way to ask that batch system: %w", errors.ErrUnsupported)
	}
	l.mu.Lock()
	l.dropLocked(time.Now())
	told, ok := l.known[a.Key()]
	if !ok {
		told = &Told{done: make(chan struct{})}
		if l.known == nil {
			l.known, l.asking = map[string]*Told{}, make(chan struct{}, lookupsAtOnce)
		}
		l.known[a.Key()] = told
	}
	l.mu.Unlock()
	if !ok {
		l.fetch(ctx, told, a, pid)
	}
	select {
	case <-told.done:
		return told, told.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch asks. Waiting for others is part of the time it may take.
func (l *Desk) fetch(ctx context.Context, told *Told, a farm.Allotment, pid int) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTimeout, fmt.Errorf("no answer within %v", lookupTimeout))
	defer cancel()
	defer close(told.done)
	defer func() { told.at = time.Now() }()
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
		told.Allotment, told.err = l.ask(ctx, a, pid)
	case <-ctx.Done():
		told.err = context.Cause(ctx)
	}
}

func (l *Desk) dropLocked(now time.Time) {
	for key, t := range l.known {
		select {
		case <-t.done:
			if age := now.Sub(t.at); age > lookupFresh || t.err != nil && age > lookupAgain {
				delete(l.known, key)
			}
		default:
		}
	}
}

// Recall is what was told of a job lately, without asking again.
func (l *Desk) Recall(a farm.Allotment) (*Told, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	told, ok := l.known[a.Key()]
	if !ok {
		return nil, false
	}
	select {
	case <-told.done:
		return told, told.err == nil
	default:
		return nil, false
	}
}
