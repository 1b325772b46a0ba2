package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// A move is ordered here, carried out by two agents, and ended by its source's report alone: that the VM has gone, or
// that it stays. The server decides nothing in between, and may be away as long as it likes.

// moveTarget is a host that could take a VM.
type moveTarget struct {
	host  farm.Host
	score float64
}

// Move orders a live migration to a host, or, where to is "", to the best one that takes it.
func (vs VMs) Move(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	to string) (farm.Move, error) {
	return vs.orderMove(ctx, ref, ifRevision, to, func(do func(*call) error) error {
		_, err := vs.server.change(ctx, who, policy.MoveVM, do)
		return err
	})
}

// orderMove chooses in one transaction, plans outside of any, and orders in another, which looks again.
func (vs VMs) orderMove(ctx context.Context, ref string, ifRevision int64, to string,
	change func(do func(*call) error) error) (m farm.Move, err error) {
	var vm farm.VM
	err = change(func(c *call) error {
		if vm, err = c.FindVM(ref); err != nil {
			return err
		}
		if err := c.Unchanged(vm, ifRevision); err != nil {
			return err
		}
		_, err := c.mayMove(vm)
		return err
	})
	if err != nil {
		return m, err
	}
	why, err := vs.server.mirror.ExplainMove(ctx, vm)
	if err != nil {
		return m, err
	}
	err = change(func(c *call) error {
		now, err := c.FindVM(vm.ID)
		if err != nil {
			return err
		}
		from, err := c.mayMove(now)
		if err != nil {
			return err
		}
		target, err := c.moveTarget(now, from, to, why)
		if err != nil {
			return err
		}
		m = farm.Move{ID: api.NewID(), VM: vm.ID, Project: vm.Project, From: from.ID, To: target.ID,
			FromName: from.Name, ToName: target.Name, Digest: now.Observed.Digest, By: c.Caller(), Since: c.Now}
		if err := c.PutMove(m); err != nil {
			return err
		}
		return c.Did("from host " + m.FromName + " to host " + m.ToName)
	})
	return m, err
}

// mayMove refuses a VM that cannot leave its host, or is on its way already.
func (c *call) mayMove(vm farm.VM) (from farm.Host, err error) {
	if m, err := c.Tx.Move(vm.ID); err == nil && m.Active() {
		return from, &farm.Error{Kind: farm.Conflict, Code: placement.CodeMoveRefused,
			Message: fmt.Sprintf("VM %s is on its way to host %s already", action.Label(vm), m.ToName),
			Hint:    "wait for it, or `grange vm move --cancel`"}
	} else if err != nil && !action.Missing(err) {
		return from, err
	}
	if vm.Host == "" {
		return from, placement.MayLeave(farm.VM{Project: vm.Project, Name: vm.Name}, farm.Cell{}, from)
	}
	if from, err = c.Tx.Host(vm.Host); err != nil {
		return from, err
	}
	if c.s.Links.Silent(from) {
		return from, &farm.Error{Kind: farm.Conflict, Code: placement.CodeMoveRefused,
			Message: fmt.Sprintf("host %s of VM %s is silent", from.Name, action.Label(vm)),
			Hint:    instead[farm.VMUnknown]}
	}
	cell, err := c.in(from.Cell)
	if err != nil {
		return from, err
	}
	return from, placement.MayLeave(vm, cell, from)
}

// moveTarget is the host called to, if it takes the VM; where to is "", the best one that does.
func (c *call) moveTarget(vm farm.VM, from farm.Host, to string, why placement.Explanation) (farm.Host, error) {
	var named farm.Host
	if to != "" {
		h, err := c.FindHost(to) // the caller needs its role in the cell that the VM goes to as well
		if err != nil {
			return h, err
		}
		named, c.Target = h, action.VMTarget(vm)
	}
	var fit []moveTarget
	var refusals []string
	for _, a := range why.Each {
		if a.Host == from.ID || named.ID == "" && a.Cell != from.Cell || named.ID != "" && a.Host != named.ID {
			continue
		}
		h, err := c.Tx.Host(a.Host)
		if action.Missing(err) {
			continue
		} else if err != nil {
			return h, err
		}
		if err := placement.MayEnter(vm, from, h); err != nil {
			refusals = append(refusals, err.Error())
		} else if !a.Fits {
			refusals = append(refusals, fmt.Sprintf("host %s: %s", a.Name, a.Message))
		} else {
			fit = append(fit, moveTarget{h, a.Score})
		}
	}
	if len(fit) > 0 {
		return slices.MinFunc(fit, func(x, y moveTarget) int {
			return cmp.Or(cmp.Compare(x.score, y.score), strings.Compare(x.host.Name, y.host.Name))
		}).host, nil
	}
	if named.ID == from.ID && named.ID != "" {
		return named, placement.MayEnter(vm, from, from)
	}
	const most = 5
	if n := len(refusals); n > most {
		refusals = append(refusals[:most], fmt.Sprintf("and %d others", n-most))
	} else if n == 0 {
		refusals = []string{"no other host in cell " + from.Cell}
	}
	return farm.Host{}, &farm.Error{Kind: farm.Conflict, Code: placement.CodeMoveRefused,
		Message: fmt.Sprintf("VM %s can go nowhere: %s", action.Label(vm), strings.Join(refusals, "; ")),
		Hint:    "`grange why " + action.Label(vm) + "` says more of each host"}
}

// LastMove returns the last move of a VM.
func (vs VMs) LastMove(ctx context.Context, who farm.Identity, ref string) (m farm.Move, err error) {
	err = vs.server.look(ctx, who, policy.ReadVM, func(c *call) error {
		vm, err := c.FindVM(ref)
		if err != nil {
			return err
		}
		if m, err = c.Tx.Move(vm.ID); action.Missing(err) {
			return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoMove,
				Message: fmt.Sprintf("VM %s was never moved", action.Label(vm)),
				Hint:    "`grange vm move " + action.Label(vm) + "` moves it"}
		}
		return err
	})
	return m, err
}

// CancelMove takes a move back, unless the VM has gone by then.
func (vs VMs) CancelMove(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (m farm.Move,
	err error) {
	_, err = vs.server.change(ctx, who, policy.MoveVM, func(c *call) error {
		vm, err := c.FindVM(ref)
		if err != nil {
			return err
		}
		if err := c.Unchanged(vm, ifRevision); err != nil {
			return err
		}
		m, err = c.Tx.Move(vm.ID)
		if action.Missing(err) || err == nil && !m.Active() {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoMove,
				Message: fmt.Sprintf("VM %s is not on its way to another host", action.Label(vm)),
				Hint:    "`grange vm show` says where it is"}
		}
		if err != nil || m.Cancelled {
			return err
		}
		m.Cancelled = true
		if err := c.PutMove(m); err != nil {
			return err
		}
		return c.Did("its move to host " + m.ToName + " is cancelled")
	})
	return m, err
}

// stopMove cancels a VM's move for another wish.
func (c *call) stopMove(vm string) error {
	m, err := c.Tx.Move(vm)
	if action.Missing(err) || err == nil && (!m.Active() || m.Cancelled) {
		return nil
	}
	if err != nil {
		return err
	}
	m.Cancelled = true
	return c.PutMove(m)
}

const (
	movesPerHost = 2                // under way at once from a host that is drained
	moveAgain    = 10 * time.Minute // after a move of a drain that failed
	moveRoom     = 3 * time.Minute  // for a target to make room
)

// moves orders what drains move, and cancels what does not begin. Of a service cell, that is all VMs that can be moved:
// who cannot, or fits nowhere, stays until the deadline.
func (u *upkeep) moves(ctx context.Context, epoch int64) error {
	if err := u.cancelLate(ctx, epoch); err != nil || !u.server.mirror.Draining() {
		return err
	}
	due, err := u.movedByDrains(ctx)
	if err != nil {
		return err
	}
	for _, vm := range due {
		_, err := u.server.VMs.orderMove(ctx, vm.ID, 0, "",
			func(do func(*call) error) error { return u.server.byItself(ctx, epoch, policy.MoveVM, do) })
		switch {
		case farm.IsCode(err, placement.CodeMoveRefused):
			u.server.unmoved.add(vm.ID, u.server.now())
			u.server.log.Info("a drain does not move a VM", "vm", action.Label(vm), "reason", err)
		case err != nil && !action.Missing(err):
			return err
		}
	}
	return nil
}

// cancelLate cancels moves whose target does not make room: it may be silent.
func (u *upkeep) cancelLate(ctx context.Context, epoch int64) error {
	late := func(t *store.Tx) (late []farm.Move, err error) {
		all, err := t.ActiveMoves()
		now := u.server.now()
		for _, m := range all {
			if !m.Cancelled && m.Target.Address == "" && m.Source.Phase == "" && now.Sub(m.Since) > moveRoom {
				late = append(late, m)
			}
		}
		return late, err
	}
	var n int
	err := u.server.store.View(ctx, func(t *store.Tx) error {
		all, err := late(t)
		n = len(all)
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	return u.server.byItself(ctx, epoch, policy.MoveVM, func(c *call) error {
		all, err := late(c.Tx)
		if err != nil {
			return err
		}
		for _, m := range all {
			m.Cancelled, m.Failure = true, fmt.Sprintf("%s: host %s has not made room within %v", farm.CodeMoveFailed,
				m.ToName, moveRoom)
			if err := c.PutMove(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// movedByDrains are VMs that are to leave hosts which are drained, a few of each host.
func (u *upkeep) movedByDrains(ctx context.Context) ([]farm.VM, error) {
	return ofHosts(ctx, u.server, policy.MoveVM, func(c *call, h farm.Host, cell farm.Cell) ([]farm.VM, error) {
		if !h.Drain.Active() || !cell.Services || u.server.Links.Silent(h) {
			return nil, nil
		}
		return c.leaving(h)
	})
}

// unmoved is when a drain found no host for a VM, by the VM's ID.
type unmoved struct {
	mu sync.Mutex
	at map[string]time.Time
}

// lookForRoom is how often a drain looks for a host of a VM that none takes.
const lookForRoom = time.Minute

// add notes that no host was found for a VM.
func (u *unmoved) add(vm string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	maps.DeleteFunc(u.at, func(_ string, at time.Time) bool { return now.Sub(at) > lookForRoom })
	u.at[vm] = now
}

// has reports whether that is so short ago that it is not tried again.
func (u *unmoved) has(vm string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.at[vm]
	return ok && now.Sub(at) <= lookForRoom
}

// leaving are the VMs of a host that are to be moved next.
func (c *call) leaving(h farm.Host) (due []farm.VM, err error) {
	vms, err := c.Tx.VMs(store.VMFilter{Host: h.ID})
	if err != nil {
		return nil, err
	}
	free := movesPerHost
	for _, vm := range vms {
		m, err := c.Tx.Move(vm.ID)
		if err != nil && !action.Missing(err) {
			return nil, err
		}
		switch {
		case m.Active():
			free--
		case c.Now.Sub(m.Ended) < moveAgain && m.Failure != "" && !m.Ended.Before(h.Drain.Since),
			c.s.unmoved.has(vm.ID, c.Now):
		case vm.Wanted.Power == farm.PowerOn && vm.Observed.State == farm.VMRunning:
			due = append(due, vm)
		}
	}
	return due[:min(max(free, 0), len(due))], nil
}
