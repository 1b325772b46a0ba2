package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/server/hub"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/store"
)

// The lease of the loops: whoever has it keeps it three times before it ends.
const (
	leaseTTL  = 15 * time.Second
	leaseKeep = leaseTTL / 3
)

// Back-off of a loop that fails.
const (
	firstBackOff = time.Second
	mostBackOff  = time.Minute
)

// loop is one thing that is kept as wanted. run goes on until ctx ends or something fails; then it is begun anew, later
// each time. epoch is the lease's, which every commit of a loop that leads is fenced by.
type loop struct {
	name string
	run  func(ctx context.Context, epoch int64) error
}

// Run works until ctx ends: it follows the change feed and hosts' reports, and, while it leads, runs the loops that
// decide.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Links.Recall(ctx); err != nil {
		s.log.Warn("it is not known which hosts were silent before: all of them are waited for", "error", err)
	}
	var all sync.WaitGroup
	for _, l := range []loop{
		{"feed", func(ctx context.Context, _ int64) error { return s.follow(ctx) }},
		{"seen", func(ctx context.Context, _ int64) error { s.Links.KeepSeen(ctx); return nil }},
		every("history", time.Minute, s.note),
		every("files of images", time.Hour, func(ctx context.Context, _ int64) error { return s.Images.Sweep(ctx) }),
	} {
		all.Go(func() { s.keep(ctx, 0, l) })
	}
	s.lead(ctx)
	all.Wait()
	return errors.Join(s.history.Save(), s.Images.Close())
}

// leading are the loops of the one server that leads.
func (s *Server) leading() []loop {
	return []loop{
		{"placer", s.place},
		every("expiry", 10*time.Second, s.upkeep.expire),
		every("drains", 5*time.Second, s.upkeep.drains),
		every("moves", 5*time.Second, s.upkeep.moves),
		every("silence", 10*time.Second, s.upkeep.silences),
		s.onChange("brokers", 3*time.Second, 15*time.Second, s.brokers.Pass),
		every("pruning", time.Hour, s.upkeep.prune),
		every("old usage", time.Hour, s.Usage.Prune),
		every("authorities", time.Hour, s.Links.RetireDue),
		s.onChange("images", time.Second, 15*time.Second, s.Images.Pass),
		every("orders of images", time.Hour, s.Images.Prune),
	}
}

// every is a loop that does one pass at a time, and the first at once.
func every(name string, pause time.Duration, pass func(ctx context.Context, epoch int64) error) loop {
	return loop{name, func(ctx context.Context, epoch int64) error {
		for {
			if err := pass(ctx, epoch); err != nil {
				return err
			}
			if sleep.For(ctx, pause) != nil {
				return nil
			}
		}
	}}
}

// onChange is a loop that does a pass when anything changed, and not more often than least, and at the latest after
// most.
func (s *Server) onChange(name string, least, most time.Duration,
	pass func(ctx context.Context, epoch int64) error) loop {
	return loop{name, func(ctx context.Context, epoch int64) error {
		for {
			seen := s.hub.Revision()
			if err := pass(ctx, epoch); err != nil {
				return err
			}
			if sleep.For(ctx, least) != nil {
				return nil
			}
			soon, cancel := context.WithTimeout(ctx, most-least)
			err := s.hub.Wait(soon, hub.Everything, seen)
			cancel()
			if err != nil && ctx.Err() != nil {
				return nil
			}
		}
	}}
}

// keep runs a loop until ctx ends. An error is logged when it is another one than before, and so is its end.
func (s *Server) keep(ctx context.Context, epoch int64, l loop) {
	log := s.log.With("loop", l.name)
	last, pause := "", firstBackOff
	for {
		begun := time.Now()
		err := l.run(ctx, epoch)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > mostBackOff {
			pause = firstBackOff
		}
		last = logChange(log, last, err)
		if sleep.For(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, mostBackOff)
	}
}

// logChange logs an error that is not the last one, and that it is over.
func logChange(log *slog.Logger, last string, err error) string {
	now := ""
	if err != nil {
		now = err.Error()
	}
	switch {
	case now == last:
	case now == "":
		log.Info("a loop works again")
	default:
		log.Error("a loop failed, and is begun anew", "error", err)
	}
	return now
}

// lead takes the lease when it can and runs the loops that decide while it has it. A server that was killed takes its
// own lease back at once: its URL and its machine tell it from the others.
func (s *Server) lead(ctx context.Context) {
	machine, _ := os.Hostname() // without one the URL must do
	holder := s.url + " " + machine
	last := ""
	for ctx.Err() == nil {
		epoch, ok, err := s.takeLease(ctx, holder)
		if ctx.Err() == nil {
			last = logChange(s.log.With("loop", "lease"), last, err)
		}
		if err == nil && ok {
			s.log.Info("this server leads", "epoch", epoch)
			s.leadUntilLost(ctx, holder, epoch)
			s.log.Info("this server leads no longer", "epoch", epoch)
			continue
		}
		_ = sleep.For(ctx, leaseKeep)
	}
}

// takeLease takes or keeps the lease; a database that hangs is one that does not answer.
func (s *Server) takeLease(ctx context.Context, holder string) (epoch int64, ok bool, err error) {
	s.leasing.Turned(time.Now())
	soon, cancel := context.WithTimeout(ctx, leaseKeep)
	defer cancel()
	return s.store.Lead(soon, holder, leaseTTL)
}

// hungAfter is how long the loop that keeps the lease may stand still: longer than the others take to end when the
// lease is lost.
const hungAfter = 4 * leaseTTL

// Works returns an error where the server should be started again. A database that does not answer is none.
func (s *Server) Works() error {
	if s.leasing.Hangs(time.Now(), hungAfter) {
		return errors.New("the loop of the lease stands still")
	}
	return nil
}

// leadUntilLost runs the loops until the lease is another's, or cannot be kept in time, or ctx ends; then it is given
// back.
func (s *Server) leadUntilLost(ctx context.Context, holder string, epoch int64) {
	within, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, l := range s.leading() {
		all.Go(func() { s.keep(within, epoch, l) })
	}
	s.leads.Store(true)
	for kept := time.Now(); sleep.For(ctx, leaseKeep) == nil; {
		asked := time.Now()
		now, ok, err := s.takeLease(ctx, holder)
		switch {
		case err == nil && ok && now == epoch:
			kept = asked
			continue
		case err != nil && time.Since(kept) < leaseTTL-leaseKeep:
			continue
		}
		break
	}
	s.leads.Store(false)
	end()
	all.Wait()
	if ctx.Err() == nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseKeep)
	defer cancel()
	if err := s.store.Resign(last, holder); err != nil {
		s.log.Warn("the lease was not given back: another server waits for its end", "error", err)
	}
}

// follow hands the hub what the change feed reports.
func (s *Server) follow(ctx context.Context) error {
	var at int64
	err := s.store.View(ctx, func(t *store.Tx) error {
		at = t.Revision()
		return nil
	})
	if err != nil {
		return err
	}
	s.hub.Miss(at)
	for {
		changes, upTo, err := s.store.Changes(ctx, at, feedPage)
		if err != nil { // also when the feed does not reach back so far: begun anew, everybody looks again
			return err
		}
		s.hub.Tell(changes, upTo)
		at = upTo
		if _, err := s.store.Wait(ctx, at); err != nil {
			return err
		}
	}
}
