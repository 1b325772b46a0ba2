package agent

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
)

func networkSettings(c config.Agent) network.Settings {
	return network.Settings{VMUIDs: c.VMUIDs, Allow: c.UserNetwork.Allow}
}

// fence keeps a machine from what its network must not reach, before its first instruction. The fake has no process,
// and no network. Errors: farm.CodeNoUserNetwork.
func (a *Agent) fence(ctx context.Context, m *machine, n farm.Network, pid int) error {
	if pid == 0 {
		return nil
	}
	return network.Of(n).Fence(ctx, network.VM{Name: m.name, Network: n, PID: pid}, networkSettings(a.config()))
}

// restoreNetworks does so for all machines that run and have a process: of an earlier agent, or of a host whose rules
// somebody has flushed.
func (a *Agent) restoreNetworks() {
	var all []network.VM
	add := func(m *machine, n farm.Network) {
		if m != nil && m.applied.PID != 0 {
			all = append(all, network.VM{Name: m.name, Network: n, PID: m.applied.PID})
		}
	}
	for _, v := range a.all() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	for _, v := range a.allFleet() {
		v.mu.Lock()
		add(v.machine, v.record.Shape.Network)
		v.mu.Unlock()
	}
	network.Restore(a.ctx, all, networkSettings(a.config()), func(vm network.VM, err error) {
		if a.ctx.Err() == nil {
			a.log.Error("the network of a vm is not restored", "vm", vm.Name, "network", string(vm.Network), "error", err)
		}
	})
}

const releaseLimit = 30 * time.Second

// releaseNetwork removes what a machine whose process is gone had of its network. What stays is logged.
func (a *Agent) releaseNetwork(name string, n farm.Network) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := network.Of(n).Release(ctx, name); err != nil {
		a.log.Error("the network of a vm is not released", "vm", name, "network", string(n), "error", err)
	}
}
