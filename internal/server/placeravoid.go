package server

import (
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

// A host has the last word on what it takes: it knows of jobs on the host, of its disk and its images what the server
// does not know yet. A VM that a host would not have, before it ever ran, goes elsewhere, and does not come back to
// that host for a while. After some hosts it is left to its owner: it is the VM then. A host that refuses VMs of
// several owners, one after the other, backs off.

// turnedAway are codes with which a host's reason begins when it would not have a VM that it never ran.
var turnedAway = []farm.Code{farm.CodeNoRoom, farm.CodeTooBig, farm.CodeBadPlan, farm.CodeBackedOff, farm.CodeNoImage,
	farm.CodeNoBridge}

// Bounds of avoiding.
const (
	maxRefusals  = 5               // hosts that may refuse a VM before it is left as it is
	firstAvoided = 2 * time.Minute // for which it does not come back to the first host; twice as long with each
)

// refusedByHost tells a VM that the placer's host would not have. One that a batch system placed is its broker's.
func refusedByHost(vm farm.VM) bool { return vm.Booking == "" && turnsAway(vm) }

// turnsAway tells a VM that its host would not have, before it ever ran.
func turnsAway(vm farm.VM) bool {
	o := vm.Observed
	if o.State != farm.VMFailed || o.CPUTime != 0 || o.Ready || vm.Wanted.Power == farm.PowerDeleted {
		return false
	}
	if !vm.Done() {
		return false // people have asked for more than the host has refused, and it may be trying: it would run twice
	}
	code, _, ok := strings.Cut(o.Reason, ":")
	return ok && slices.Contains(turnedAway, farm.Code(code))
}

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
	hosts[host] = now.Add(firstAvoided << min(len(hosts), maxRefusals))
	return len(hosts) > maxRefusals
}

// forget is for a VM that is gone.
func (a *avoidance) forget(vm string) { delete(a.until, vm) }

// of are the hosts that a VM keeps off now, in order.
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

// over are VMs that need not keep off some host any longer.
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

// due is when something is over next; ok is false when there is nothing.
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

// refusedBy has a VM placed elsewhere that its host would not have.
func (p *placer) refusedBy(vm farm.VM, g *group) {
	now := p.now()
	if p.avoid.add(vm.ID, vm.Host, now) {
		p.log.Warn("VM is refused by one host after the other", "vm", vm.ID, "host", vm.Host, "reason",
			vm.Observed.Reason)
		return
	}
	p.log.Info("host refused a VM; it is placed elsewhere", "vm", vm.ID, "host", vm.Host, "reason", vm.Observed.Reason)
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
	g.refused = append(g.refused, vm)
}

// backOff closes a host that refuses one VM after the other, and opens it when its time has come.
func (p *placer) backOff(host string, now time.Time) {
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
	p.tellRefusal(host)
}

// sound forgets what a host refused: it runs a VM.
func (p *placer) sound(host string) {
	if p.avoid.hosts[host] == nil {
		return
	}
	p.avoid.hosts[host] = breaker.New(breaker.Defaults)
	p.backOff(host, p.now())
	delete(p.avoid.hosts, host)
}

// reopen lets hosts be tried again whose time has come.
func (p *placer) reopen(now time.Time) {
	for host := range p.avoid.hosts {
		if p.hosts[host].backsOff != "" {
			p.backOff(host, now)
		}
	}
}

// writeRefused takes a VM away from the host that would not have it.
func (p *placer) writeRefused(t *store.Tx, was farm.VM) error {
	vm, err := t.VM(was.ID)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if vm.Host != was.Host || !refusedByHost(vm) {
		return nil
	}
	vm.Waiting = "host " + p.hosts[vm.Host].name + " would not have it: " + vm.Observed.Brief()
	vm.Host, vm.Plan = "", farm.Plan{}
	if err := t.SetVMPlace(vm); err != nil {
		return err
	}
	return t.SetVMObserved(vm.ID, farm.Observed{})
}
