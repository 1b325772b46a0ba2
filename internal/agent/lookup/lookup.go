// Package lookup asks a batch system what the kernel does not know of its jobs, and not more often than it bears.
package lookup

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

// Lookups remember for a moment what batch systems told: all tasks of a job ask at the same time, and one of them asks
// for all. Of jobs that do not get an answer there may be hundreds, each asking again; so that they are not hundreds of
// commands for a batch system in trouble, failures are remembered as well, and few ask at a time.
type Lookups struct {
	Ask Ask // nil: nobody to ask

	mu     sync.Mutex
	known  map[string]*Told
	asking chan struct{} // as many as ask
}

// Told is what was told of a job.
type Told struct {
	farm.Allotment
	err  error
	at   time.Time
	done chan struct{} // closed when the above are there
}

const (
	// as Slurm's own MessageTimeout; while it is away its commands try again for longer
	timeout = 10 * time.Second
	fresh   = time.Minute
	again   = 5 * time.Second // after a failure
	atOnce  = 4
)

// Of is what is told of the job that pid is a process of.
func (l *Lookups) Of(ctx context.Context, job farm.Allotment, pid int) (*Told, error) {
	if l.Ask == nil {
		return nil, fmt.Errorf("this agent has no way to ask that batch system: %w", errors.ErrUnsupported)
	}
	l.mu.Lock()
	l.dropLocked(time.Now())
	told, ok := l.known[job.Key()]
	if !ok {
		told = &Told{done: make(chan struct{})}
		if l.known == nil {
			l.known, l.asking = map[string]*Told{}, make(chan struct{}, atOnce)
		}
		l.known[job.Key()] = told
	}
	l.mu.Unlock()
	if !ok {
		l.fetch(ctx, told, job, pid)
	}
	select {
	case <-told.done:
		return told, told.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch asks. Waiting for others is part of the time it may take.
func (l *Lookups) fetch(ctx context.Context, told *Told, job farm.Allotment, pid int) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	defer close(told.done)
	defer func() { told.at = time.Now() }()
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
		told.Allotment, told.err = l.Ask(ctx, job, pid)
	case <-ctx.Done():
		told.err = context.Cause(ctx)
	}
}

func (l *Lookups) dropLocked(now time.Time) {
	for key, t := range l.known {
		select {
		case <-t.done:
			if age := now.Sub(t.at); age > fresh || t.err != nil && age > again {
				delete(l.known, key)
			}
		default:
		}
	}
}

// Recall is what was told of a job lately, without asking again.
func (l *Lookups) Recall(a farm.Allotment) (*Told, bool) {
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
