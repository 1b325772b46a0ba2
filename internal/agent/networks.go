package agent

import (
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
)

// restoreNetworks restores the networks of all machines that run.
func (a recovery) restoreNetworks() {
	var all []network.VM
	add := func(m *machine.Machine, n farm.Network) {
		if m != nil && m.Applied.PID != 0 {
			all = append(all, network.VM{Name: m.Name, Network: n, PID: m.Applied.PID})
		}
	}
	for _, v := range a.all() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	for _, v := range a.Cloud.All() {
		add(v.Current(), v.Network())
	}
	a.machines.RestoreNetworks(a.ctx, all)
}
