package hostlink

import (
	"cmp"
	"slices"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/wire"
)

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
func (s *Links) arrived(t *store.Tx, vm farm.VM, side farm.MoveSide) error {
	m, err := t.Move(vm.ID)
	if err != nil && !action.Missing(err) {
		return err
	}
	now := s.Now().UTC()
	if m.ID != side.ID {
		m = farm.Move{ID: side.ID, VM: vm.ID, Project: vm.Project, From: vm.Host, To: side.Host, Since: now}
	}
	to, err := t.HostBrief(m.To)
	if action.Missing(err) || err == nil && to.Cell != vm.Cell {
		s.Log.Error("a host says that a VM has gone to a host that it cannot go to", "vm", vm.ID, "from",
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
	return t.Audit(action.Entry(action.Itself, now, action.MovedVM, action.VMTarget(vm), action.Done,
		"from host "+cmp.Or(m.FromName, m.From)+" to host "+m.ToName))
}

// putMove writes what takeMove made of a report.
func (s *Links) putMove(t *store.Tx, m farm.Move) error {
	if err := t.PutMove(m); err != nil || m.Active() {
		return err
	}
	vm, err := t.VM(m.VM)
	if err != nil {
		return err
	}
	return t.Audit(action.Entry(action.Itself, s.Now().UTC(), action.MovedVM, action.VMTarget(vm), action.Failed,
		"it stays on host "+m.FromName+": "+m.Failure))
}

// moveOrders adds to a host's list its parts of the moves that are under way: to VMs that it has the order to let go,
// and those that come.
func moveOrders(t *store.Tx, host string, list *fleet.WantedList,
	network func(name string) (farm.FleetNetwork, error), walls *firewalls) error {
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
			if action.Missing(err) {
				continue
			} else if err != nil {
				return err
			}
			n, err := network(vm.Network)
			if err != nil {
				return err
			}
			wall, err := walls.of(vm)
			if err != nil {
				return err
			}
			w := wire.WantedVM(vm, n, wall)
			o.Host, o.Name, o.Address, o.Come, o.Cancel = m.From, m.FromName, "", true, false
			w.Plan, w.Move = nil, &o
			list.VMs = append(list.VMs, w)
		}
	}
	return nil
}
