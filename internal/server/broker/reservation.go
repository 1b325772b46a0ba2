package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// A VM of a batch cell has a reservation: a placeholder job that holds its capacity, beside which the VM runs. The VM's
// row says so from before the batch system is called until the capacity is released. The reservation has the VM's ID as
// its name, and the row names the job. So whenever a server dies, the next one finds what it left, and reserves nothing
// twice.

// How long a reservation that is not held yet waits for one host, and how long a VM keeps off a host that would not
// have it.
const (
	reservedWait = 5 * time.Minute
	Avoided      = 5 * time.Minute
)

// reservations is what the loop remembers between passes; a server that begins to lead learns it anew.
type reservations struct {
	waiting map[string]time.Time            // by VM: since when its reservation is not held
	avoid   map[string]map[string]time.Time // by VM and host's ID: until when
	refusal map[string]string               // by VM: why it keeps off a host, the last one
	closed  map[string]closing              // by host's ID: those that were closed there, or are to be, or opened

	demanded  time.Time         // when the batch system was asked what waits
	readEnded time.Time         // when jobs that ended were asked for last
	staged    map[string]staged // by image: those that jobs wait for
}

func newReservations() *reservations {
	return &reservations{waiting: map[string]time.Time{}, avoid: map[string]map[string]time.Time{},
		refusal: map[string]string{}, closed: map[string]closing{}, staged: map[string]staged{}}
}

// Reserve hands a VM of the placer over to a cell of a batch system: it writes into the VM's row that it needs a
// reservation there, and the loop makes it. It may be called again.
func (s *Brokers) Reserve(ctx context.Context, epoch int64, vm farm.VM, cell string) error {
	return s.actions.ByItself(ctx, epoch, policy.CreateVM, func(c *action.Call) error {
		now, err := c.Tx.VM(vm.ID)
		if action.Missing(err) {
			return nil
		}
		if err != nil || now.Host != "" || now.Reservation != "" || now.Wanted.Power == farm.PowerDeleted {
			return err
		}
		now.Cell, now.Reservation, now.Waiting = cell, farm.ToReserve, "a place is being reserved in cell "+cell
		return c.SetVMPlace(now)
	})
}

// reserveAll looks after every VM of the cell that has a reservation, or needs one.
func (b *brokerPass) reserveAll(ctx context.Context) error {
	p, err := b.reservePass(ctx)
	if err != nil || len(p.vms) == 0 {
		return err
	}
	there, err := b.system.Reservations(ctx)
	if err != nil {
		return err
	}
	for _, o := range there {
		p.there[o.Name] = o
	}
	for _, vm := range p.vms {
		switch err := p.one(ctx, vm); {
		case err == nil:
		case !ofOne(err), farm.IsKind(err, farm.Unavailable): // nobody answers: the others would wait for that, too
			return err
		default: // of this VM alone, and for its owner
			if vm.Waiting != err.Error() {
				p.Log.Warn("reservation of a VM failed", "vm", vm.ID, "cell", p.cell.Name, "error", err)
			}
			if err := p.tell(ctx, vm, err.Error()); err != nil {
				return err
			}
		}
	}
	return nil
}

// reservePass reads what a pass needs of the store. Which reservations there are is not asked yet.
func (b *brokerPass) reservePass(ctx context.Context) (*reservePass, error) {
	p := &reservePass{brokerPass: b, there: map[string]batch.Reserved{}, free: map[string]int{}}
	for id, n := range b.nodes {
		p.free[id] = n.Free
	}
	return p, b.Store.View(ctx, func(t *store.Tx) (err error) {
		p.vms, err = t.VMs(store.VMFilter{Cell: b.cell.Name, Reserved: true})
		if err == nil {
			p.projects, err = t.Projects()
		}
		return err
	})
}

// ofOne reports whether an error is about one reservation or one image, and not of the store, which ends the pass.
func ofOne(err error) bool {
	e, ok := errors.AsType[*farm.Error](err)
	return ok && e.Code != store.CodeNotLeader && e.Kind != farm.Internal
}

// reservePass is what a pass knows of reservations.
type reservePass struct {
	*brokerPass
	vms      []farm.VM
	projects []farm.Project
	there    map[string]batch.Reserved // by name
	free     map[string]int            // CPUs by the host's ID
	fleet    *placement.Fleet          // of the cell's hosts; made when it is needed
	groups   map[string]farm.Affinity
}

func (p *reservePass) one(ctx context.Context, vm farm.VM) error {
	reserved, is := p.there[vm.ID]
	deleted := vm.Wanted.Power == farm.PowerDeleted
	switch {
	case deleted && (vm.Host == "" || vm.Observed.State == farm.VMGone):
		return p.giveBack(ctx, vm)
	case deleted:
		return nil // its host still has it
	case vm.Host != "" && placement.Rejected(vm) && len(p.memory.avoid[vm.ID]) < placement.MaxRejections:
		return p.sentAway(ctx, vm)
	case vm.Host != "":
		return p.keepPlace(ctx, vm, reserved, is)
	case is && reserved.Held:
		return p.give(ctx, vm, reserved)
	case is:
		return p.waits(ctx, vm, reserved)
	}
	return p.choose(ctx, vm)
}

// giveBack ends a VM of which nothing is left: first its reservation, then its row.
func (p *reservePass) giveBack(ctx context.Context, vm farm.VM) error {
	if err := p.system.Release(ctx, vm.ID); err != nil {
		return err
	}
	p.memory.forget(vm.ID)
	return p.actions.ByItself(ctx, p.epoch, policy.DeleteVM, func(c *action.Call) error {
		now, err := c.Tx.VM(vm.ID)
		if action.Missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		now.Reservation = ""
		return p.EndVM(c.Tx, now, fmt.Sprintf("its reservation in %s is given back", p.cell.Broker))
	})
}

func (b *reservations) forget(vm string) {
	delete(b.waiting, vm)
	delete(b.avoid, vm)
	delete(b.refusal, vm)
}

// sentAway is for a VM that its host refused before it ever ran: another host is reserved for it. After some hosts it
// is left to its owner.
func (p *reservePass) sentAway(ctx context.Context, vm farm.VM) error {
	p.Log.Info("host refused a VM that has a reservation", "vm", vm.ID, "host", vm.Host, "reason", vm.Observed.Reason)
	p.avoidHost(vm.ID, vm.Host, vm.Observed.Brief())
	if err := p.letGo(ctx, vm); err != nil {
		return err
	}
	return p.actions.ByItself(ctx, p.epoch, policy.CreateVM, func(c *action.Call) error {
		now, err := c.Tx.VM(vm.ID)
		if action.Missing(err) {
			return nil
		}
		if err != nil || now.Host != vm.Host || !placement.Rejected(now) {
			return err
		}
		now.Host, now.Reservation, now.Waiting = "", farm.ToReserve, "a host would not have it: "+now.Observed.Brief()
		if err := c.SetVMPlace(now); err != nil {
			return err
		}
		return c.SetVMObserved(now.ID, farm.Observed{})
	})
}

// tell changes what a VM waits for.
func (p *reservePass) tell(ctx context.Context, vm farm.VM, waiting string) error {
	if vm.Waiting == waiting || vm.Host != "" && waiting == "" && vm.Resize != nil {
		return nil
	}
	return p.set(ctx, vm, func(now *farm.VM) { now.Waiting = waiting })
}

// set changes the place of a VM, unless somebody else has changed it meanwhile.
func (p *reservePass) set(ctx context.Context, vm farm.VM, do func(*farm.VM)) error {
	return p.actions.ByItself(ctx, p.epoch, policy.CreateVM, func(c *action.Call) error {
		now, err := c.Tx.VM(vm.ID)
		if action.Missing(err) {
			return nil
		}
		if err != nil || elsewhere(now, vm) || now.Wanted.Power == farm.PowerDeleted {
			return err
		}
		do(&now)
		return c.SetVMPlace(now)
	})
}

// elsewhere reports whether a VM has another place now than when it was read.
func elsewhere(now, read farm.VM) bool {
	return now.Host != read.Host || now.Reservation != read.Reservation
}

// give gives a VM the host where its capacity is held. The host plans by itself, within what the batch system left it.
func (p *reservePass) give(ctx context.Context, vm farm.VM, reserved batch.Reserved) error {
	h, ok := p.hostOf(reserved.Host)
	if !ok || p.avoids(vm.ID, h.ID) || p.Closed(h, p.cell) != "" {
		return p.letGo(ctx, vm)
	}
	return p.set(ctx, vm, func(now *farm.VM) {
		now.Host, now.Plan, now.Reservation, now.Waiting = h.ID, farm.Plan{}, p.held(reserved), ""
	})
}

// waits is for a reservation that the batch system does not hold yet: it is left in peace for a while, for others may
// go before it there.
func (p *reservePass) waits(ctx context.Context, vm farm.VM, reserved batch.Reserved) error {
	since, known := p.memory.waiting[vm.ID]
	if !known {
		since = p.Now()
		p.memory.waiting[vm.ID] = since
	}
	if h, ok := p.hostOf(reserved.Host); !ok || p.Closed(h, p.cell) != "" || p.Now().Sub(since) > reservedWait {
		if ok {
			p.avoidHost(vm.ID, h.ID, reserved.Why)
		}
		return p.letGo(ctx, vm)
	}
	return p.tell(ctx, vm, p.pending(reserved))
}

// pending returns what a reservation waits for.
func (p *reservePass) pending(reserved batch.Reserved) string {
	return fmt.Sprintf("job %s of %s is to hold its place on %s, and waits: %s", reserved.Job, p.cell.Broker,
		reserved.Host, reserved.Why)
}

// held is what the row of a VM says of the job that holds its place.
func (p *reservePass) held(reserved batch.Reserved) string {
	return string(p.system.Name()) + "/" + reserved.Job
}

// letGo gives a reservation back so that another host is chosen at the next pass.
func (p *reservePass) letGo(ctx context.Context, vm farm.VM) error {
	delete(p.memory.waiting, vm.ID)
	return p.system.Release(ctx, vm.ID)
}

func (p *reservePass) avoidHost(vm, host, why string) {
	if p.memory.avoid[vm] == nil {
		p.memory.avoid[vm] = map[string]time.Time{}
	}
	p.memory.avoid[vm][host] = p.Now().Add(Avoided)
	p.memory.refusal[vm] = why
}

func (p *reservePass) avoids(vm, host string) bool { return p.Now().Before(p.memory.avoid[vm][host]) }

// hostOf is the host that the batch system calls so.
func (p *reservePass) hostOf(node string) (farm.Host, bool) {
	for _, h := range p.hosts {
		if p.nodes[h.ID].Name == node {
			return h, true
		}
	}
	return farm.Host{}, false
}

// choose reserves a place for a VM on the host that placement likes best among those where the batch system has CPUs to
// give.
func (p *reservePass) choose(ctx context.Context, vm farm.VM) error {
	if p.fleet == nil {
		if err := p.fill(ctx); err != nil {
			return err
		}
	}
	if err := policy.CheckQuota("cell "+p.cell.Name, p.cell.Limits, p.used(), vm.Shape.Quota()); err != nil {
		return p.tell(ctx, vm, err.Error())
	}
	r := p.request(vm)
	placed, err := p.fleet.Claim(r)
	for ; err == nil && p.free[placed.Host] < vm.Shape.CPUs; placed, err = p.fleet.Claim(r) {
		p.fleet.Release(vm.ID)
		r.Avoid = append(r.Avoid, placed.Host)
	}
	if err != nil {
		text := p.noRoom(p.request(vm))
		if why := p.memory.refusal[vm.ID]; why != "" {
			text += "; what was said when it was refused: " + why
		}
		return p.tell(ctx, vm, text)
	}
	p.free[placed.Host] -= vm.Shape.CPUs
	reserved, err := p.system.Reserve(ctx, p.reservation(vm, p.nodes[placed.Host]))
	if err != nil {
		if !farm.IsKind(err, farm.Unavailable) {
			p.avoidHost(vm.ID, placed.Host, err.Error())
		}
		return err
	}
	p.there[vm.ID] = reserved
	p.Log.Info("VM has a reservation", "vm", vm.ID, "cell", p.cell.Name, "host", reserved.Host, "job", reserved.Job)
	if reserved.Held {
		return p.give(ctx, vm, reserved)
	}
	return p.waits(ctx, vm, reserved)
}

// used is what VMs of the cell hold that have a host, or a reservation.
func (p *reservePass) used() (used farm.Quota) {
	for _, vm := range p.vms {
		if _, reserved := p.there[vm.ID]; reserved || vm.Host != "" {
			used.VMs++
			used.CPUs += vm.Shape.CPUs
			used.Memory += vm.Shape.Memory
			used.Scratch += vm.Shape.DiskSpace()
		}
	}
	return used
}

// reservation is what the batch system is asked for: the guest's size, and what QEMU needs beside it.
func (p *reservePass) reservation(vm farm.VM, n batch.Node) batch.Reservation {
	account := vm.Project
	for _, project := range p.projects {
		if project.Name == vm.Project {
			account = cmp.Or(project.Account, project.Name)
		}
	}
	return batch.Reservation{Name: vm.ID, Account: account, Host: n.Name, CPUs: vm.Shape.CPUs,
		Memory: vm.Shape.Memory + farm.Need(vm.Shape.Memory, vm.Shape.CPUs, false), Queue: p.cell.Batch}
}

// request is what placement is asked for a VM.
func (p *reservePass) request(vm farm.VM) placement.Request {
	r := placement.RequestOf(vm, []string{p.cell.Name}, p.groups)
	for host := range p.memory.avoid[vm.ID] {
		if p.avoids(vm.ID, host) {
			r.Avoid = append(r.Avoid, host)
		}
	}
	slices.Sort(r.Avoid)
	return r
}

// fill makes the fleet of this cell's hosts, as far as the batch system has CPUs to give there.
func (p *reservePass) fill(ctx context.Context) error {
	p.groups = map[string]farm.Affinity{}
	var networks []farm.FleetNetwork
	var hosts []farm.Host
	err := p.Store.View(ctx, func(t *store.Tx) error {
		groups, err := t.Groups("")
		if err != nil {
			return err
		}
		for _, g := range groups {
			p.groups[g.Project+"/"+g.Name] = g.Affinity
		}
		if networks, err = t.Networks(); err != nil {
			return err
		}
		hosts, err = t.Hosts(p.cell.Name)
		return err
	})
	if err != nil {
		return err
	}
	p.fleet = placement.NewFleet()
	cell := p.cell
	cell.Broker = farm.BrokerGrange // the host is chosen here; the batch system reserves it
	p.fleet.SetCell(cell)
	for _, h := range hosts {
		host := placement.HostOf(h, p.cell, networks)
		host.Refuses, host.Closed = p.refuses(h), false
		p.fleet.Set(host)
	}
	for _, vm := range p.vms {
		if vm.Host != "" {
			placed := placement.PlacedOf(vm)
			placed.Plan = vm.Observed.Plan
			p.fleet.Restore(placed)
		}
	}
	return nil
}

// refuses returns why nobody can reserve this host now; "": anybody can.
func (p *reservePass) refuses(h farm.Host) string {
	n, known := p.nodes[h.ID]
	why, _ := placement.Refusal(h)
	switch closed := p.Closed(h, p.cell); {
	case why != "":
		return why
	case closed != "":
		return "it is " + closed
	case !known:
		return p.cell.Broker + " does not know it"
	case n.Closed || n.State == batch.NodeDown || n.State == batch.NodeOff:
		return withReason(fmt.Sprintf("in %s it is %s", p.cell.Broker, n.State), n.Reason)
	}
	return ""
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}
