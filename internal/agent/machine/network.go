package machine

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
)

func (h *Host) networkSettings() network.Settings {
	c := h.Config()
	return network.Settings{VMUIDs: c.VMUIDs, Allow: c.UserNetwork.Allow, Host: c.Network}
}

// CheckNetwork refuses a network that this host does not have, or may not carry. Errors: farm.CodeNoBridge,
// farm.CodeNotCarried.
func (h *Host) CheckNetwork(n farm.Network) error { return network.Of(n).Check(n, h.networkSettings()) }

// NetworkCard makes what a VM's network needs before its process is there, and returns its card. Errors:
// farm.CodeNotCarried, network.CodeNotMade.
func (h *Host) NetworkCard(ctx context.Context, vm network.VM) (hyper.Card, error) {
	return network.Of(vm.Network).Prepare(ctx, vm, h.networkSettings())
}

// Fence keeps a machine from what its network must not reach, before its first instruction. The fake has no process,
// and no network. Errors: farm.CodeNoUserNetwork, farm.CodeNoFilter.
func (h *Host) Fence(ctx context.Context, vm network.VM, pid int) error {
	if pid == 0 {
		return nil
	}
	vm.PID = pid
	return network.Of(vm.Network).Fence(ctx, vm, h.networkSettings())
}

// RestoreNetworks does so for all machines that run and have a process: of an earlier agent, or of a host whose rules
// somebody has flushed.
func (h *Host) RestoreNetworks(ctx context.Context, all []network.VM) {
	network.Restore(ctx, all, h.networkSettings(), func(vm network.VM, err error) {
		if ctx.Err() == nil {
			h.Log.Error("the network of a vm is not restored", "vm", vm.Name, "network", string(vm.Network), "error", err)
		}
	})
}

const releaseLimit = 30 * time.Second

// ReleaseNetwork removes what a machine whose process is gone had of its network. What stays is logged.
func (h *Host) ReleaseNetwork(name string, n farm.Network) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := network.Of(n).Release(ctx, name); err != nil {
		h.Log.Error("the network of a vm is not released", "vm", name, "network", string(n), "error", err)
	}
}
