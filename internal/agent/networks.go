package agent

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/grange-project/grange/internal/agent/leases"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/lease"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/vmimage"
)

// restoreNetworks restores the networks of all machines that run.
func (a recovery) restoreNetworks() {
	var all []network.VM
	add := func(m *machine.Machine, vm network.VM) {
		if m != nil && m.Applied.PID != 0 {
			vm.Name, vm.PID = m.Name, m.Applied.PID
			all = append(all, vm)
		}
	}
	for _, v := range a.all() {
		v.mu.Lock()
		add(v.machine, v.record.networkVM(""))
		v.mu.Unlock()
	}
	for _, v := range a.Cloud.All() {
		add(v.Current(), v.NetworkVM())
	}
	a.machines.RestoreNetworks(a.ctx, all)
}

// leaseHolders are the VMs of this host, cloud VMs included, with what they have.
func (a *Agent) leaseHolders() (all []leases.Holder) {
	for _, v := range a.all() {
		r := v.recordNow()
		h := leases.Holder{VM: r.Name, Owner: v.owner.User()}
		switch {
		case r.Lease != nil:
			h.Lease = *r.Lease
		case r.Worker != nil:
			h.Lease.MAC, h.Lease.Addresses = r.Worker.MAC, []netip.Prefix{r.Worker.Address}
		}
		all = append(all, h)
	}
	for _, v := range a.Cloud.All() {
		vm := v.NetworkVM()
		all = append(all, leases.Holder{Lease: leases.Lease{Lease: lease.Lease{MAC: vm.MAC, Addresses: vm.Addresses}}})
	}
	return all
}

func (a routes) getNetworks(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return answer(w, a.leases.All())
}

func (a routes) getNetwork(w http.ResponseWriter, r *http.Request, c Caller) error {
	n, err := a.leases.Show(r.PathValue("name"), func(owner uint32) bool { return a.maySee(c, owner) })
	if err != nil {
		return err
	}
	return answer(w, n)
}

// lease gives a VM that has its room a lease, where it is on a network of the site.
func (v *making) lease(image vmimage.Image) error {
	r := v.recordNow()
	if r.Site == "" {
		return nil
	}
	if r.Lease == nil { // of an earlier attempt
		began := time.Now()
		enough := func() bool { return v.request.NoWait || v.waitedTooLong(began) }
		if err := v.agent.leases.Await(v.ctx, r.Site, enough, v.publishWaiting, func(l leases.Lease) error {
			v.update(func() { v.record.Lease, v.record.Shape.Network = &l, l.On })
			return nil
		}); err != nil {
			return err
		}
	}
	if err := v.recordNow().Shape.CheckBandwidth(); err != nil { // the network may be another since
		return err
	}
	return v.recordNow().Lease.CheckImage(image)
}

// networkVM is a machine for its network. It has a lease on one of the site, or a worker the one address that it was
// given.
func (r record) networkVM(name string) network.VM {
	vm := network.VM{Name: name, Network: r.Shape.Network, Bandwidth: r.Shape.Bandwidth}
	if l := r.Lease; l != nil {
		vm = l.OnNetwork(vm)
	} else if w := r.Worker; w != nil {
		vm.Host, vm.MAC, vm.Isolated = w.Name, w.MAC, w.Isolated
		if w.Address.IsValid() {
			vm.Addresses = []netip.Prefix{w.Address}
		}
	}
	return vm
}
