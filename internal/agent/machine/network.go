package machine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/dhcp"
)

func (h *Host) networkSettings() network.Settings {
	c := h.Config()
	return network.Settings{VMUIDs: c.VMUIDs, Reach: network.Reach(c.UserNetwork), Host: c.Network}
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
// and no network. Errors: farm.CodeNoUserNetwork, farm.CodeNoFilter,
// farm.CodeNoDHCP.
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

// DHCPServers shows the servers of networks: those that are configured, and those that run.
func DHCPServers(configured farm.HostNetworks) (all []api.HostDHCP) {
	there := network.Servers()
	for n, d := range configured.DHCP {
		if !slices.ContainsFunc(there, func(s dhcp.Status) bool { return s.Network == n }) {
			there = append(there, dhcp.Status{Network: n, Server: d})
		}
	}
	for _, s := range there {
		shown := api.HostDHCP{Network: string(s.Network), Runs: s.PID != 0, VMs: s.VMs}
		for _, a := range s.Server.Hosts() {
			shown.Addresses = append(shown.Addresses, a.String())
		}
		all = append(all, shown)
	}
	slices.SortFunc(all, func(a, b api.HostDHCP) int { return strings.Compare(a.Network, b.Network) })
	return all
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
