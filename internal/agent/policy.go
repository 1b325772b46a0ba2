package agent

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Lookup asks a batch system what the kernel does not know of one of its jobs, of which pid is a process: account, queue and end; CPUs and memory
// where a has none. What stays empty the job does not have. It must not ask anything that the job's user could answer. errors.ErrUnsupported: there
// is no way to ask.
type Lookup func(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error)

// decide applies the site's policy to a caller and what it wishes.
func (a *Agent) decide(c Caller, r *api.JobRequest) (policy.Decision, error) {
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
	}
	return w
}

// who is the caller as rules see it. A rule that looks at account or queue fails closed: if neither the kernel nor the batch
// system can tell, the job is not started.
func (a *Agent) who(rules []policy.Rule, c Caller) (policy.Who, error) {
	w := policy.Who{UID: c.UID, GIDs: append([]uint32{c.GID}, c.Groups...), System: c.Batch.System, Account: c.Batch.Account, Queue: c.Batch.Queue}
	if known, err := user.LookupId(strconv.Itoa(int(c.UID))); err == nil {
		w.User = known.Username
	}
	for _, gid := range w.GIDs {
		if known, err := user.LookupGroupId(strconv.Itoa(int(gid))); err == nil {
			w.Groups = append(w.Groups, known.Name)
		}
	}
	if c.Batch.System == "" || !policy.NeedsQueue(rules) || w.Account != "" && w.Queue != "" {
		return w, nil
	}
	told, err := a.lookups.of(a.ctx, c)
	if err != nil {
		return w, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeUnknownQueue, Err: err,
			Message: "a rule of this host's policy looks at account or queue, and those of job " + c.Batch.Job + " cannot be told",
			Hint:    "see whether the batch system answers on this host"}
	}
	if w.Account == "" {
		w.Account = told.Account
	}
	if w.Queue == "" {
		w.Queue = told.Queue
	}
	return w, nil
}

// lookups remembers for a moment what batch systems told: all tasks of a job ask at the same time.
type lookups struct {
	ask Lookup // nil: nobody to ask

	mu    sync.Mutex
	known map[string]toldOf
}

type toldOf struct {
	farm.Allotment
	at time.Time
}

const (
	lookupTimeout = 10 * time.Second // as Slurm's own MessageTimeout; while it is away its commands try again for longer
	lookupFresh   = time.Minute
)

func (l *lookups) of(ctx context.Context, c Caller) (toldOf, error) {
	if l.ask == nil {
		return toldOf{}, fmt.Errorf("this agent has no way to ask that batch system: %w", errors.ErrUnsupported)
	}
	a := c.Batch
	now := time.Now()
	l.mu.Lock()
	for key, t := range l.known {
		if now.Sub(t.at) > lookupFresh {
			delete(l.known, key)
		}
	}
	told, ok := l.known[a.Key()]
	l.mu.Unlock()
	if ok {
		return told, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTimeout, fmt.Errorf("no answer within %v", lookupTimeout))
	defer cancel()
	answer, err := l.ask(ctx, a, c.PID)
	if err != nil {
		return toldOf{}, err
	}
	told = toldOf{answer, now}
	l.mu.Lock()
	if l.known == nil {
		l.known = map[string]toldOf{}
	}
	l.known[a.Key()] = told
	l.mu.Unlock()
	return told, nil
}

// recall is what was told of a job lately, without asking again.
func (l *lookups) recall(a farm.Allotment) (toldOf, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	told, ok := l.known[a.Key()]
	return told, ok
}
