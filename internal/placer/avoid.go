package placer

import (
	"slices"
	"time"

	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
	"github.com/grange-project/grange/internal/store"
)

// A host has the last word on what it takes: it knows of jobs on the host, of its disk and its images what the server
// does not know yet. A VM that a host would not have, before it ever ran, goes elsewhere, and does not come back to
// that host for a while. After some hosts it is left to its owner: it is the VM then. A host that refuses VMs of
// several owners, one after the other, backs off.

// firstAvoided is how long a VM does not come back to the first host; twice as long with each.
const firstAvoided = 2 * time.Minute

// rejected reports whether a host would not have a VM that the placer gave it. One that a batch system placed is its
// broker's.
func rejected(vm farm.VM) bool { return vm.Reservation == "" && placement.Rejected(vm) }

// avoidance is which VM keeps off which host, and until when.
type avoidance struct {
	until map[string]map[string]time.Time // by VM and host
	hosts map[string]*breaker.Set         // by host: of those that refused lately
}

func newAvoidance() *avoidance {
	return &avoidance{until: map[string]map[string]time.Time{}, hosts: map[string]*breaker.Set{}}
}

// add keeps a VM off a host, and reports whether it has been refused too often.
func (a *avoidance) add(vm, host string, now time.Time) (tooOften bool) {
	hosts := a.until[vm]
	if hosts == nil {
		hosts = map[string]time.Time{}
		a.until[vm] = hosts
	}
	hosts[host] = now.Add(firstAvoided << min(len(hosts), placement.MaxRejections))
	return len(hosts) > placement.MaxRejections
}

// forget forgets a VM that is gone.
func (a *avoidance) forget(vm string) { delete(a.until, vm) }

// of returns the hosts that a VM keeps off now, in order.
func (a *avoidance) of(vm string, now time.Time) []string {
	var hosts []string
	for host, until := range a.until[vm] {
		if now.Before(until) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// over returns VMs that need not keep off some host any longer.
func (a *avoidance) over(now time.Time) []string {
	var vms []string
	for vm, hosts := range a.until {
		before := len(hosts)
		for host, until := range hosts {
			if !now.Before(until) {
				delete(hosts, host)
			}
		}
		if len(hosts) < before {
			vms = append(vms, vm)
		}
		if len(hosts) == 0 {
			delete(a.until, vm)
		}
	}
	slices.Sort(vms)
	return vms
}

// due returns when something is over next; ok is false when there is nothing.
func (a *avoidance) due(now time.Time) (next time.Time, ok bool) {
	earlier := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	for _, hosts := range a.until {
		for _, until := range hosts {
			earlier(until)
		}
	}
	for _, set := range a.hosts {
		if b, open := set.Host(); open && now.Before(b.Until) {
			earlier(b.Until)
		}
	}
	return next, ok
}

// rejectedBy has a VM placed elsewhere that its host would not have.
func (p *Placer) rejectedBy(vm farm.VM, g *group) {
	now := p.options.Now()
	if p.avoid.add(vm.ID, vm.Host, now) {
		p.options.Log.Warn("VM is refused by one host after the other", "vm", vm.ID, "host", vm.Host, "reason",
			vm.Observed.Reason)
		return
	}
	p.options.Log.Info("host refused a VM; it is placed elsewhere", "vm", vm.ID, "host", vm.Host, "reason",
		vm.Observed.Reason)
	set := p.avoid.hosts[vm.Host]
	if set == nil {
		set = breaker.New(breaker.Defaults)
		p.avoid.hosts[vm.Host] = set
	}
	set.Untested(now)
	if ticket, err := set.Admit(now, breaker.Start{Image: vm.Image, User: vm.Owner}); err == nil {
		set.Failed(now, ticket, breaker.TheHost, vm.Observed.Brief())
	}
	p.backOff(vm.Host, now)
	g.rejected = append(g.rejected, vm)
}

// backOff closes a host that refuses one VM after the other, and opens it when its time has come.
func (p *Placer) backOff(host string, now time.Time) {
	n, ok := p.hosts[host]
	if !ok {
		return
	}
	n.backsOff = ""
	p.avoid.hosts[host].Untested(now)
	if b, open := p.avoid.hosts[host].Host(); open {
		n.backsOff = "it refused several VMs in a row, and is tried again at " + b.Until.UTC().Format("15:04:05 UTC")
	}
	p.hosts[host] = n
	p.setRefusal(host)
}

// recovered forgets what a host refused: it runs a VM.
func (p *Placer) recovered(host string) {
	if p.avoid.hosts[host] == nil {
		return
	}
	p.avoid.hosts[host] = breaker.New(breaker.Defaults)
	p.backOff(host, p.options.Now())
	delete(p.avoid.hosts, host)
}

// reopen lets hosts be tried again whose time has come.
func (p *Placer) reopen(now time.Time) {
	for host := range p.avoid.hosts {
		if p.hosts[host].backsOff != "" {
			p.backOff(host, now)
		}
	}
}

// writeRejected takes a VM away from the host that would not have it.
func (p *Placer) writeRejected(t *store.Tx, was farm.VM) error {
	vm, err := t.VM(was.ID)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if vm.Host != was.Host || !rejected(vm) {
		return nil
	}
	vm.Waiting = "host " + p.hosts[vm.Host].name + " would not have it: " + vm.Observed.Brief()
	vm.Host, vm.Plan = "", farm.Plan{}
	if err := t.SetVMPlace(vm); err != nil {
		return err
	}
	return t.SetVMObserved(vm.ID, farm.Observed{})
}
