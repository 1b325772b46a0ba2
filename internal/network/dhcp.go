package network

import (
	"context"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network/dhcp"
)

// servers are the DHCP servers of the host. What is kept of one is kept by its bridge, and goes with the last VM on it.
var servers = dhcp.Servers{Dir: "/run/grange/dhcp", Group: groupText}

// Servers are the host's DHCP servers that run, or should.
func Servers() []dhcp.Status { return servers.All() }

// serve has the network's server, where there is one, give a VM its addresses.
func serve(ctx context.Context, vm VM, s Settings) error {
	d, ok := s.Host.DHCP[vm.Network]
	if !ok || len(vm.Addresses) == 0 {
		return nil
	}
	for _, p := range vm.Addresses {
		if slices.Contains(d.Hosts(), p.Addr()) {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoDHCP,
				Message: fmt.Sprintf("the VM was given %v, which is the DHCP server's on network %s", p.Addr(),
					vm.Network),
				Hint: "take it out of the network's leases, or give the server in [network.dhcp] another one"}
		}
	}
	return servers.Serve(ctx, vm.Network, d, vm.served())
}

func (vm VM) served() dhcp.VM {
	return dhcp.VM{Machine: vm.Name, PID: vm.PID, Host: vm.Host, MAC: vm.mac().String(), Addresses: vm.Addresses,
		Gateways: vm.Gateways, DNS: vm.DNS}
}

// restoreServers has the servers of networks run, and know their VMs.
func restoreServers(ctx context.Context, vms []VM, s Settings) error {
	all := map[farm.Network][]dhcp.VM{}
	for _, vm := range vms {
		if len(vm.Addresses) > 0 && vm.mac() != nil {
			all[vm.Network] = append(all[vm.Network], vm.served())
		}
	}
	return servers.Restore(ctx, s.Host.DHCP, all)
}
