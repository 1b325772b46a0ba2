package server

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/broker"
)

// seen is what one call has looked up: the VMs and hosts of a list share it.
type seen struct {
	hosts   map[string]farm.Host // without their facts
	cells   map[string]farm.Cell
	orphans map[string][]farm.Orphan // by host; nil: not looked up
	brokers map[string]broker.Note   // by cell
}

// views show VMs, hosts and cells as the caller of an action may see them.
type views struct {
	*action.Call
	s    *Server
	seen seen
}

// on is the host of a VM, without its facts, which are most of it; ok is false when it is not there.
func (c *views) on(id string) (h farm.Host, ok bool, err error) {
	if h, ok := c.seen.hosts[id]; ok {
		return h, h.ID != "", nil
	}
	h, err = c.Tx.HostBrief(id)
	if err != nil && !action.Missing(err) {
		return h, false, err
	}
	if c.seen.hosts == nil {
		c.seen.hosts = map[string]farm.Host{}
	}
	c.seen.hosts[id] = h
	return h, h.ID != "", nil
}

// meet looks up the hosts of VMs together: one by one they are a question to the database each.
func (c *views) meet(vms []farm.VM) error {
	if c.seen.hosts == nil {
		c.seen.hosts = map[string]farm.Host{}
	}
	var ids []string
	for _, vm := range vms {
		if _, met := c.seen.hosts[vm.Host]; !met && vm.Host != "" {
			ids = append(ids, vm.Host)
			c.seen.hosts[vm.Host] = farm.Host{} // it stays so for one that is not there
		}
	}
	hosts, err := c.HostsBriefOf(ids)
	for _, h := range hosts {
		c.seen.hosts[h.ID] = h
	}
	return err
}

// in is a cell; the zero cell when it is not there.
func (c *views) in(name string) (farm.Cell, error) {
	if c.seen.cells == nil {
		cells, err := c.Cells()
		if err != nil {
			return farm.Cell{}, err
		}
		c.seen.cells = map[string]farm.Cell{}
		for _, cell := range cells {
			c.seen.cells[cell.Name] = cell
		}
	}
	return c.seen.cells[name], nil
}

// show is a VM as the caller may see it: what its reason quotes of its console is for those who may read the console.
func (c *views) show(vm farm.VM) (VMView, error) {
	if !c.Allowed(policy.ConsoleVM, action.VMTarget(vm)) {
		vm.Observed.Reason = vm.Observed.Brief()
	}
	v := VMView{VM: vm}
	if vm.Host == "" {
		v.State, v.Notice = vm.State(false), vm.Waiting
		if vm.Reservation == "" {
			return v, nil
		}
		return v, c.brokerAway(&v)
	}
	h, ok, err := c.on(vm.Host)
	if err != nil {
		return v, err
	}
	silent := !ok || c.s.Links.Silent(h)
	v.State, v.HostName = vm.State(silent), h.Name
	cell, err := c.in(h.Cell)
	if err != nil {
		return v, err
	}
	if d, what := h.DrainIn(cell); d.Active() {
		v.StopsAt, v.Notice = d.Deadline, drainNotice(d, what)
	} else if silent && v.State == farm.VMUnknown {
		v.Notice = fmt.Sprintf("its host %s is silent since %s: it may run; what is asked for now is done when the "+
			"host answers", h.Name, h.Seen.UTC().Format(time.RFC3339))
	} else {
		v.Notice = vm.Waiting
	}
	if vm.Reservation == farm.ToReserve && vm.Wanted.Power == farm.PowerOn {
		return v, c.brokerAway(&v)
	}
	return v, nil
}

// brokerAway says of a VM that waits for its batch system when that does not answer.
func (c *views) brokerAway(v *VMView) error {
	note, err := c.brokerNote(v.Cell)
	if note.Error != "" {
		v.Notice = note.Error + "; tried again"
	}
	return err
}

func drainNotice(d farm.Drain, what string) string {
	text := what + " is being drained"
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	if d.Deadline.IsZero() {
		return text + ": please end it when you can"
	}
	return text + ": what runs there is stopped at " + d.Deadline.UTC().Format(time.RFC3339)
}
