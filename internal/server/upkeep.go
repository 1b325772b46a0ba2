package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/sleep"
	"github.com/grange-project/grange/internal/store"
)

// upkeepBatch bounds how many VMs or hosts one transaction of a loop changes: writers wait for each other.
const upkeepBatch = 200

// How long answers to requests and lines of the audit log are kept.
const (
	keepAnswers = 24 * time.Hour
	keepEntries = 400 * 24 * time.Hour
	// of incidents, after the last entry of one that is closed
	keepIncidents = 3 * 365 * 24 * time.Hour
)

// upkeep is what the server that leads does by itself, in loops.
type upkeep struct {
	server *Server
	silent map[string]bool // hosts when the loop looked last, by ID; the loop's own
}

// expire deletes VMs whose time is over.
func (u *upkeep) expire(ctx context.Context, epoch int64) error {
	for {
		due := store.VMFilter{ExpiresBefore: u.server.now(), Limit: upkeepBatch}
		n, err := u.count(ctx, due)
		if err != nil || n == 0 {
			return err
		}
		err = u.server.byItself(ctx, epoch, policy.DeleteVM, func(c *call) error {
			vms, err := c.Tx.VMs(due)
			if err != nil {
				return err
			}
			for _, vm := range vms {
				if err := c.expired(vm); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (u *upkeep) count(ctx context.Context, f store.VMFilter) (n int, err error) {
	err = u.server.store.View(ctx, func(t *store.Tx) error {
		n, err = t.CountVMs(f)
		return err
	})
	return n, err
}

func (c *call) expired(vm farm.VM) error {
	c.Target = action.VMTarget(vm)
	if err := c.Did("expired at " + action.When(vm.Expires)); err != nil {
		return err
	}
	vm.Wanted.Power = farm.PowerDeleted
	if vm.Host == "" || vm.Observed.State == farm.VMLost {
		return c.end(vm, "expired")
	}
	return c.SetVM(vm)
}

// drains stops what still runs on hosts whose drain is past its deadline.
func (u *upkeep) drains(ctx context.Context, epoch int64) error {
	if !u.server.mirror.Draining() {
		return nil
	}
	due, err := u.drained(ctx)
	if err != nil {
		return err
	}
	for _, h := range due {
		err := u.server.byItself(ctx, epoch, policy.StopVM, func(c *call) error {
			vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID})
			if err != nil {
				return err
			}
			for _, vm := range vms {
				if vm.Wanted.Power != farm.PowerOn {
					continue
				}
				c.Target = action.VMTarget(vm)
				if err := c.Did(h.why); err != nil {
					return err
				}
				vm.Wanted.Power = farm.PowerOff
				if err := c.SetVM(vm); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dueDrain is a host whose VMs are to be stopped.
type dueDrain struct{ ID, why string }

// drained are the hosts whose drain is past its deadline, and that have VMs which are wanted on.
func (u *upkeep) drained(ctx context.Context) ([]dueDrain, error) {
	return ofHosts(ctx, u.server, policy.StopVM, func(c *call, h farm.Host, cell farm.Cell) ([]dueDrain, error) {
		d, what := h.DrainIn(cell)
		if !d.Active() || d.Deadline.IsZero() || c.Now.Before(d.Deadline) {
			return nil, nil
		}
		vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID})
		if !slices.ContainsFunc(vms, func(vm farm.VM) bool { return vm.Wanted.Power == farm.PowerOn }) {
			return nil, err
		}
		return []dueDrain{{h.ID, drainNotice(d, what)}}, nil
	})
}

// ofHosts collects what a loop of the server's own, which does act, finds on each host, in one snapshot.
func ofHosts[T any](ctx context.Context, s *Server, act policy.Action,
	find func(*call, farm.Host, farm.Cell) ([]T, error)) (all []T, err error) {
	err = s.look(ctx, action.Itself, act, func(c *call) error {
		all = nil
		hosts, err := c.HostsBrief("")
		if err != nil {
			return err
		}
		for _, h := range hosts {
			cell, err := c.in(h.Cell)
			if err != nil {
				return err
			}
			some, err := find(c, h, cell)
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
		return nil
	})
	return all, err
}

// Hosts are looked at for silence a page at a time, with a pause.
const (
	silencePage  = 500
	silencePause = 100 * time.Millisecond
)

// silences notes which hosts are not heard of any more, and which are again, and tells watchers of them. Nothing is
// done to their VMs: lost is not gone.
func (u *upkeep) silences(ctx context.Context, epoch int64) error {
	var news []farm.Host
	now := map[string]bool{}
	for after := ""; ; {
		some, last, err := u.newSilences(ctx, after, now)
		if err != nil {
			return err
		}
		if news = append(news, some...); last == "" || sleep.For(ctx, silencePause) != nil {
			break
		}
		after = last
	}
	if ctx.Err() != nil {
		return nil
	}
	if len(news) > 0 {
		if err := u.tellSilence(ctx, epoch, news, now); err != nil {
			return err
		}
	}
	u.silent = now
	return nil
}

// newSilences enters in now which hosts of a page are silent, and returns those of which that is news; last is "" when
// there is no other page.
func (u *upkeep) newSilences(ctx context.Context, after string, now map[string]bool) (news []farm.Host, last string,
	err error) {
	err = u.server.store.View(ctx, func(t *store.Tx) error {
		news, last = nil, ""
		all, err := t.HostsSeenAfter(after, silencePage)
		if err != nil {
			return err
		}
		if len(all) == silencePage {
			last = all[silencePage-1].ID
		}
		for _, seen := range all {
			now[seen.ID] = u.server.Links.Silent(farm.Host{ID: seen.ID, Seen: seen.At})
			if was, known := u.silent[seen.ID]; known && was != now[seen.ID] {
				h, err := t.HostBrief(seen.ID)
				if err != nil {
					return err
				}
				news = append(news, h)
			}
		}
		return nil
	})
	return news, last, err
}

// tellSilence reports all that is news, some at a time: when a switch fails all hosts fall silent at once. Those that
// were told of are noted, so that what fails is tried again without them.
func (u *upkeep) tellSilence(ctx context.Context, epoch int64, news []farm.Host, silent map[string]bool) error {
	for some := range slices.Chunk(news, upkeepBatch) {
		err := u.server.byItself(ctx, epoch, action.SilentHost, func(c *call) error {
			for _, h := range some {
				if err := c.tellSilent(h, silent[h.ID]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, h := range some {
			u.silent[h.ID] = silent[h.ID]
		}
	}
	return nil
}

// tellSilent reports that a host has fallen silent, or is heard of again.
func (c *call) tellSilent(h farm.Host, silent bool) error {
	what, why := action.BackHost, "it reports again"
	if silent {
		what, why = action.SilentHost, "not seen since "+action.When(h.Seen)
	}
	c.s.log.Warn("host changed state", "host", h.Name, "what", what, "why", why)
	if err := c.Audit(action.Entry(action.Itself, c.Now, what, action.HostTarget(h), action.Done, why)); err != nil {
		return err
	}
	if err := c.TouchHost(h.ID); !action.Missing(err) {
		return err
	}
	return nil // it was forgotten meanwhile
}

// prune drops what nobody asks for any more: old answers to requests, old lines of the audit log, incidents that were
// closed long ago, what audits of hosts found long ago, orders of streams whose server is gone.
func (u *upkeep) prune(ctx context.Context, epoch int64) error {
	err := u.server.byItself(ctx, epoch, policy.StopVM, func(c *call) error {
		streams, err := c.Streams("")
		if err != nil {
			return err
		}
		for _, o := range streams {
			if c.Now.Sub(o.Created) < forgottenAfter {
				continue
			}
			if err := c.DeleteStream(o.ID); err != nil && !action.Missing(err) {
				return err
			}
		}
		return nil
	})
	for again := true; again && err == nil; {
		err = u.server.byItself(ctx, epoch, policy.StopVM, func(c *call) (err error) {
			if again, err = c.Prune(c.Now.Add(-keepAnswers), c.Now.Add(-keepEntries)); err != nil {
				return fmt.Errorf("prune the store: %w", err)
			}
			more, err := c.PruneSessions(c.Now)
			if err != nil {
				return err
			}
			old, err := c.PruneIncidents(c.Now.Add(-keepIncidents))
			if err != nil {
				return err
			}
			found, err := c.PruneFindings(c.Now.Add(-keepFindings))
			again = again || more || old || found
			return err
		})
	}
	return err
}
