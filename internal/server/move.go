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
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

// A move is ordered here, carried out by two agents, and ended by its source's report alone: that the VM has gone, or
// that it stays. The server decides nothing in between, and may be away as long as it likes.

// moveTarget is a host that could take a VM.
type moveTarget struct {
	host  farm.Host
	score float64
}

// MoveVM orders a live migration to a host, or, where to is "", to the best one that takes it.
func (s *Server) MoveVM(ctx context.Context, who farm.Identity, ref string, ifRevision int64,
	to string) (farm.Move, error) {
	return s.orderMove(ctx, ref, ifRevision, to, func(do func(*call) error) error {
		_, err := s.change(ctx, who, policy.MoveVM, do)
		return err
	})
}

// orderMove chooses in one transaction, plans outside of any, and orders in another, which looks again.
func (s *Server) orderMove(ctx context.Context, ref string, ifRevision int64, to string,
	change func(do func(*call) error) error) (m farm.Move, err error) {
	var vm farm.VM
	err = change(func(c *call) error {
		if vm, err = c.vm(ref); err != nil {
			return err
		}
		if err := c.unchanged(vm, ifRevision); err != nil {
			return err
		}
		_, err := c.mayMove(vm)
		return err
	})
	if err != nil {
		return m, err
	}
	why, err := s.mirror.ExplainMove(ctx, vm)
	if err != nil {
		return m, err
	}
	err = change(func(c *call) error {
		now, err := c.vm(vm.ID)
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
			FromName: from.Name, ToName: target.Name, Digest: now.Observed.Digest, By: c.caller(), Since: c.now}
		if err := c.PutMove(m); err != nil {
			return err
		}
		return c.did("from host " + m.FromName + " to host " + m.ToName)
	})
	return m, err
}

// mayMove refuses a VM that cannot leave its host, or is on its way already.
func (c *call) mayMove(vm farm.VM) (from farm.Host, err error) {
	if m, err := c.Tx.Move(vm.ID); err == nil && m.Active() {
		return from, &farm.Error{Kind: farm.Conflict, Code: placement.CodeMoveRefused,
			Message: fmt.Sprintf("VM %s is on its way to host %s already", label(vm), m.ToName),
			Hint:    "wait for it, or `grange vm move --cancel`"}
	} else if err != nil && !missing(err) {
		return from, err
	}
	if vm.Host == "" {
		return from, placement.MayLeave(farm.VM{Project: vm.Project, Name: vm.Name}, farm.Cell{}, from)
	}
	if from, err = c.Tx.Host(vm.Host); err != nil {
		return from, err
	}
	if c.s.silent(from) {
		return from, &farm.Error{Kind: farm.Conflict, Code: placement.CodeMoveRefused,
			Message: fmt.Sprintf("host %s of VM %s is silent", from.Name, label(vm)), Hint: instead[farm.VMUnknown]}
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
		c.target = vmTarget(vm)
		h, err := c.hostCalled(to)
		if err != nil {
			return h, err
		}
		named = h
	}
	var fit []moveTarget
	var refusals []string
	for _, a := range why.Each {
		if a.Host == from.ID || named.ID == "" && a.Cell != from.Cell || named.ID != "" && a.Host != named.ID {
			continue
		}
		h, err := c.Tx.Host(a.Host)
		if missing(err) {
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
		Message: fmt.Sprintf("VM %s can go nowhere: %s", label(vm), strings.Join(refusals, "; ")),
		Hint:    "`grange why " + label(vm) + "` says more of each host"}
}

// hostCalled is a host by name or ID, whatever the caller may do with it.
func (c *call) hostCalled(ref string) (farm.Host, error) {
	h, err := c.Tx.HostNamed(ref)
	if missing(err) {
		h, err = c.Tx.Host(ref)
	}
	if missing(err) {
		return h, noHost(ref)
	}
	return h, err
}

// Move is the last move of a VM.
func (s *Server) Move(ctx context.Context, who farm.Identity, ref string) (m farm.Move, err error) {
	err = s.look(ctx, who, policy.ReadVM, func(c *call) error {
		vm, err := c.vm(ref)
		if err != nil {
			return err
		}
		if m, err = c.Tx.Move(vm.ID); missing(err) {
			return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoMove,
				Message: fmt.Sprintf("VM %s was never moved", label(vm)),
				Hint:    "`grange vm move " + label(vm) + "` moves it"}
		}
		return err
	})
	return m, err
}

// CancelMove takes a move back, unless the VM has gone by then.
func (s *Server) CancelMove(ctx context.Context, who farm.Identity, ref string, ifRevision int64) (m farm.Move,
	err error) {
	_, err = s.change(ctx, who, policy.MoveVM, func(c *call) error {
		vm, err := c.vm(ref)
		if err != nil {
			return err
		}
		if err := c.unchanged(vm, ifRevision); err != nil {
			return err
		}
		m, err = c.Tx.Move(vm.ID)
		if missing(err) || err == nil && !m.Active() {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoMove,
				Message: fmt.Sprintf("VM %s is not on its way to another host", label(vm)),
				Hint:    "`grange vm show` says where it is"}
		}
		if err != nil || m.Cancelled {
			return err
		}
		m.Cancelled = true
		if err := c.PutMove(m); err != nil {
			return err
		}
		return c.did("its move to host " + m.ToName + " is cancelled")
	})
	return m, err
}

// stopMove cancels a VM's move for another wish.
func (c *call) stopMove(vm string) error {
	m, err := c.Tx.Move(vm)
	if missing(err) || err == nil && (!m.Active() || m.Cancelled) {
		return nil
	}
	if err != nil {
		return err
	}
	m.Cancelled = true
	return c.PutMove(m)
}

// movedVM is what the audit log calls what came of a move.
const movedVM policy.Action = "vm.moved"

// takeMove enters what a host reports of a move, as far as that is news. It returns the change that there is to write;
// nil: none.
func takeMove(m farm.Move, host string, o farm.Observed, side *farm.MoveSide, now time.Time) *farm.Move {
	if side == nil || !m.Active() || side.ID != m.ID {
		return nil
	}
	was := m
	switch {
	case host == m.From && side.Phase == fleet.MoveFailed:
		m.Source, m.Ended = *side, now
		m.Failure = cmp.Or(m.Failure, side.Reason, "its source does not say why")
	case host == m.From:
		m.Source = *side // of MoveGone the VM's row is written, too
	case host == m.To:
		m.Target, m.Arrival = *side, o
		if side.Phase == fleet.MoveFailed && !m.Cancelled {
			m.Cancelled, m.Failure = true, side.Reason
		}
	}
	if m.Source == was.Source && m.Target == was.Target && m.Ended.Equal(was.Ended) &&
		m.Arrival.State == was.Arrival.State && m.Arrival.Ready == was.Arrival.Ready {
		return nil
	}
	return &m
}

// arrived enters that a VM is the target's, as its source has said: by the move that is under way, or, in a store that
// is older than that, by one that it never heard of.
func (s *Server) arrived(t *store.Tx, vm farm.VM, side farm.MoveSide) error {
	m, err := t.Move(vm.ID)
	if err != nil && !missing(err) {
		return err
	}
	now := s.now().UTC()
	if m.ID != side.ID {
		m = farm.Move{ID: side.ID, VM: vm.ID, Project: vm.Project, From: vm.Host, To: side.Host, Since: now}
	}
	to, err := t.HostBrief(m.To)
	if missing(err) || err == nil && to.Cell != vm.Cell {
		s.log.Error("a host says that a VM has gone to a host that it cannot go to", "vm", vm.ID, "from",
			vm.Host, "to", m.To)
		return nil
	} else if err != nil {
		return err
	}
	m.Source, m.Ended, m.Failure, m.ToName = side, now, "", to.Name
	vm.Host, vm.Plan = m.To, m.Arrival.Plan
	o := vm.Observed
	if m.Arrival.State == farm.VMRunning {
		o = m.Arrival
	}
	o.Plan, o.CPUTime = m.Arrival.Plan, max(o.CPUTime, vm.Observed.CPUTime)
	if err := t.SetVMPlace(vm); err != nil {
		return err
	}
	if err := t.SetVMObserved(vm.ID, o); err != nil {
		return err
	}
	if err := t.PutMove(m); err != nil {
		return err
	}
	return t.Audit(entry(itself, now, movedVM, vmTarget(vm), outcomeDone,
		"from host "+cmp.Or(m.FromName, m.From)+" to host "+m.ToName))
}

// putMove writes what takeMove made of a report.
func (s *Server) putMove(t *store.Tx, m farm.Move) error {
	if err := t.PutMove(m); err != nil || m.Active() {
		return err
	}
	vm, err := t.VM(m.VM)
	if err != nil {
		return err
	}
	return t.Audit(entry(itself, s.now().UTC(), movedVM, vmTarget(vm), outcomeFailed,
		"it stays on host "+m.FromName+": "+m.Failure))
}

// moveOrders adds to a host's list its parts of the moves that are under way: to VMs that it has the order to let go,
// and those that come.
func moveOrders(t *store.Tx, host string, list *fleet.WantedList,
	network func(name string) (farm.FleetNetwork, error)) error {
	moves, err := t.ActiveMoves()
	if err != nil {
		return err
	}
	for _, m := range moves {
		o := fleet.MoveOrder{ID: m.ID, Host: m.To, Name: m.ToName, Address: m.Target.Address, Digest: m.Digest,
			Cancel: m.Cancelled}
		switch host {
		case m.From:
			for i := range list.VMs {
				if list.VMs[i].ID == m.VM {
					list.VMs[i].Move = &o
				}
			}
		case m.To:
			if slices.ContainsFunc(list.VMs, func(w fleet.WantedVM) bool { return w.ID == m.VM }) {
				continue // what is left there of an earlier stay goes first
			}
			vm, err := t.VM(m.VM)
			if missing(err) {
				continue
			} else if err != nil {
				return err
			}
			n, err := network(vm.Network)
			if err != nil {
				return err
			}
			w := wire.WantedVM(vm, n)
			o.Host, o.Name, o.Address, o.Come, o.Cancel = m.From, m.FromName, "", true, false
			w.Plan, w.Move = nil, &o
			list.VMs = append(list.VMs, w)
		}
	}
	return nil
}

const (
	movesPerHost = 2                // under way at once from a host that is drained
	moveAgain    = 10 * time.Minute // after a move of a drain that failed
	moveRoom     = 3 * time.Minute  // for a target to make room
)

// moves orders what drains move, and cancels what does not begin. Of a service cell, that is all VMs that can be moved:
// who cannot, or fits nowhere, stays until the deadline.
func (s *Server) moves(ctx context.Context, epoch int64) error {
	if err := s.cancelLate(ctx, epoch); err != nil || !s.mirror.Draining() {
		return err
	}
	due, err := s.movedByDrains(ctx)
	if err != nil {
		return err
	}
	for _, vm := range due {
		_, err := s.orderMove(ctx, vm.ID, 0, "",
			func(do func(*call) error) error { return s.byItself(ctx, epoch, policy.MoveVM, do) })
		switch {
		case farm.IsCode(err, placement.CodeMoveRefused):
			s.unmoved.add(vm.ID, s.now())
			s.log.Info("a drain does not move a VM", "vm", label(vm), "reason", err)
		case err != nil && !missing(err):
			return err
		}
	}
	return nil
}

// cancelLate cancels moves whose target does not make room: it may be silent.
func (s *Server) cancelLate(ctx context.Context, epoch int64) error {
	late := func(t *store.Tx) (late []farm.Move, err error) {
		all, err := t.ActiveMoves()
		for _, m := range all {
			if !m.Cancelled && m.Target.Address == "" && m.Source.Phase == "" && s.now().Sub(m.Since) > moveRoom {
				late = append(late, m)
			}
		}
		return late, err
	}
	var n int
	err := s.store.View(ctx, func(t *store.Tx) error {
		all, err := late(t)
		n = len(all)
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	return s.byItself(ctx, epoch, policy.MoveVM, func(c *call) error {
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
func (s *Server) movedByDrains(ctx context.Context) ([]farm.VM, error) {
	return ofHosts(ctx, s, policy.MoveVM, func(c *call, h farm.Host, cell farm.Cell) ([]farm.VM, error) {
		if !h.Drain.Active() || !cell.Services || s.silent(h) {
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
		if err != nil && !missing(err) {
			return nil, err
		}
		switch {
		case m.Active():
			free--
		case c.now.Sub(m.Ended) < moveAgain && m.Failure != "" && !m.Ended.Before(h.Drain.Since),
			c.s.unmoved.has(vm.ID, c.now):
		case vm.Wanted.Power == farm.PowerOn && vm.Observed.State == farm.VMRunning:
			due = append(due, vm)
		}
	}
	return due[:min(max(free, 0), len(due))], nil
}
