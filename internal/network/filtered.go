package network

import (
	"context"
	"net"

	"github.com/grange-project/grange/internal/network/nwfilter"
)

// filtered is what kinds have in common whose VMs share a network by taps on a bridge of the host.
type filtered struct{ plain }

func (filtered) Fence(ctx context.Context, vm VM, _ Settings) error {
	err := nwfilter.Fence(ctx, nwfilter.VM{PID: vm.PID, Filter: vm.filter()})
	if err != nil || vm.Bandwidth.In == 0 {
		return err
	}
	return shape(ctx, vm)
}

func (filtered) Restore(ctx context.Context, vms []VM, _ Settings, failed func(VM, error)) {
	all := make([]nwfilter.VM, len(vms))
	for i, vm := range vms {
		all[i] = nwfilter.VM{PID: vm.PID, Filter: vm.filter()}
	}
	nwfilter.Restore(ctx, all, func(i int, err error) { failed(vms[i], err) })
	reshape(ctx, vms, failed)
}

func (filtered) Release(ctx context.Context, name string) error { return nwfilter.Release(ctx, name) }

// HoldsGroups returns why this host cannot hold VMs to security groups; nil: it can.
func HoldsGroups(ctx context.Context) error { return nwfilter.CheckGroups(ctx) }

// filter is what the VM may be and whom it may reach. A MAC that is none is refused with the filter.
func (vm VM) filter() nwfilter.Filter {
	mac, _ := net.ParseMAC(vm.MAC)
	f := nwfilter.Filter{Machine: vm.Name, MAC: mac, Isolated: vm.Isolated, Closed: vm.Closed, Gateway: vm.Gateways,
		DNS: vm.DNS, Send: vm.Bandwidth.Out, Groups: vm.Firewall}
	if kind, _ := vm.Network.Kind(); kind.Name != "bridge" { // the agent made it, and gave the host no address there
		f.Bridge = vm.Network.Bridge()
	}
	for _, p := range vm.Addresses {
		f.Addresses = append(f.Addresses, p.Addr())
		f.Local = append(f.Local, p.Masked())
	}
	return f
}
