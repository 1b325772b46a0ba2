package agent

import (
	"net/netip"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/network"
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

// networkVM is a machine for its network. A worker has the one address that it was given.
func (r record) networkVM(name string) network.VM {
	vm := network.VM{Name: name, Network: r.Shape.Network}
	if w := r.Worker; w != nil {
		vm.MAC, vm.Isolated = w.MAC, w.Isolated
		if w.Address.IsValid() {
			vm.Addresses = []netip.Prefix{w.Address}
		}
	}
	return vm
}
