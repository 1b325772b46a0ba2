package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Lookup asks a batch system what the kernel does not know of one of its jobs, of which pid is a process: account,
// queue and end; CPUs and memory where a has none. What stays empty the job does not have. It must not ask anything
// that the job's user could answer. errors.ErrUnsupported: there is no way to ask.
type Lookup func(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error)

// decide applies the site's policy to a caller and what it wishes.
func (a requests) decide(c Caller, r *api.JobRequest) (policy.Decision, error) {
	rules := a.config().Policy
	if len(rules) == 0 {
		return policy.Decision{Image: r.Image, Shape: r.Shape, Network: r.Network}, nil
	}
	who, err := a.who(rules, c)
	if err != nil {
		return policy.Decision{}, err
	}
	return policy.Decide(rules, who, wishOf(r))
}

func wishOf(r *api.JobRequest) policy.Wish {
	w := policy.Wish{Image: r.Image, Shape: r.Shape, Network: r.Network, CPUs: r.CPUs, Memory: farm.Bytes(r.Memory)}
	if r.Scratch != nil {
		w.Scratch = farm.Bytes(*r.Scratch)
	}
	for _, b := range r.Binds {
		w.Mounts = append(w.Mounts, b.Target)
		w.Gateways = append(w.Gateways, farm.Gateway(b.Gateway))
	}
	return w
}

// who is the caller as rules see it. Rules fail closed: where one looks at a name, an account or a queue that nobody
// knows, the job is not started.
func (a requests) who(rules []policy.Rule, c Caller) (policy.Who, error) {
	w := policy.Who{UID: c.UID, GIDs: append([]uint32{c.GID}, c.Groups...), System: c.Batch.System,
		Account: c.Batch.Account, Queue: c.Batch.Queue}
	known, err := a.namesOf(c)
	if err == nil {
		err = known.satisfy(rules, c)
	}
	if err != nil {
		return w, err
	}
	w.User, w.Groups = known.user.Name, slices.Collect(maps.Values(known.groups))
	if c.Batch.System == "" || !policy.NeedsQueue(rules) || w.Account != "" && w.Queue != "" {
		return w, nil
	}
	told, err := a.lookups.of(a.ctx, c)
	if err != nil {
		return w, &farm.Error{Kind: farm.Unavailable, Code: CodeUnknownQueue, Err: err,
			Message: "a rule of this host's policy looks at account or queue, and those of job " + c.Batch.Job +
				" cannot be told", Hint: "see whether the batch system answers on this host"}
	}
	if w.Account == "" {
		w.Account = told.Account
	}
	if w.Queue == "" {
		w.Queue = told.Queue
	}
	return w, nil
}

// lookups remembers for a moment what batch systems told: all tasks of a job ask at the same time, and one of them asks
// for all. Of jobs that do not get an answer there may be hundreds, each asking again; so that they are not hundreds of
// commands for a batch system in trouble, failures are remembered as well, and few ask at a time.
type lookups struct {
	ask Lookup // nil: nobody to ask

	mu     sync.Mutex
	known  map[string]*toldOf
	asking chan struct{} // as many as ask
}

type toldOf struct {
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

func (l *lookups) of(ctx context.Context, c Caller) (*toldOf, error) {
	if l.ask == nil {
		return nil, fmt.Errorf("this agent has no way to ask that batch system: %w", errors.ErrUnsupported)
	}
	l.mu.Lock()
	l.dropLocked(time.Now())
	told, ok := l.known[c.Batch.Key()]
	if !ok {
		told = &toldOf{done: make(chan struct{})}
		if l.known == nil {
			l.known, l.asking = map[string]*toldOf{}, make(chan struct{}, lookupsAtOnce)
		}
		l.known[c.Batch.Key()] = told
	}
	l.mu.Unlock()
	if !ok {
		l.fetch(ctx, told, c)
	}
	select {
	case <-told.done:
		return told, told.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch asks. Waiting for others is part of the time it may take.
func (l *lookups) fetch(ctx context.Context, told *toldOf, c Caller) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTimeout, fmt.Errorf("no answer within %v", lookupTimeout))
	defer cancel()
	defer close(told.done)
	defer func() { told.at = time.Now() }()
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
		told.Allotment, told.err = l.ask(ctx, c.Batch, c.PID)
	case <-ctx.Done():
		told.err = context.Cause(ctx)
	}
}

func (l *lookups) dropLocked(now time.Time) {
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

// recall is what was told of a job lately, without asking again.
func (l *lookups) recall(a farm.Allotment) (*toldOf, bool) {
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
