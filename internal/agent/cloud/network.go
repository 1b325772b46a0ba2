package cloud

import (
	"net/netip"

	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/wire"
)

// networkVM is a machine for its network: what the server has leased, and whom it may reach. An address that cannot be
// read stays in it as one that the network refuses.
func networkVM(machine string, r record) network.VM {
	w := r.Wanted
	vm := network.VM{Name: machine, Network: r.Shape.Network, Host: w.Hostname, MAC: w.MAC, Isolated: w.Isolated,
		Closed: w.Closed, Bandwidth: r.Shape.Bandwidth}
	if w.Firewall != nil {
		wall := wire.ParseFirewall(*w.Firewall)
		vm.Firewall = &wall
	}
	if w.Address != "" {
		address, _ := netip.ParsePrefix(w.Address)
		vm.Addresses = []netip.Prefix{address}
	}
	if gateway, err := netip.ParseAddr(w.Gateway); err == nil {
		vm.Gateways = []netip.Addr{gateway}
	}
	for _, text := range w.DNS {
		if server, err := netip.ParseAddr(text); err == nil {
			vm.DNS = append(vm.DNS, server)
		}
	}
	return vm
}
