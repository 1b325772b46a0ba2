package network

import (
	"context"
	"errors"
	"net"

	"github.com/grange-project/grange/internal/network/nwfilter"
)

// filtered is what kinds have in common whose VMs share a network by taps on a bridge of the host.
type filtered struct{ plain }

func (filtered) Fence(ctx context.Context, vm VM, s Settings) error {
	err := nwfilter.Fence(ctx, nwfilter.VM{PID: vm.PID, Filter: vm.filter(s)})
	if err == nil && vm.Bandwidth.In > 0 {
		err = shape(ctx, vm)
	}
	if err != nil {
		return err
	}
	return serve(ctx, vm, s)
}

func (filtered) Restore(ctx context.Context, vms []VM, s Settings, failed func(VM, error)) {
	all := make([]nwfilter.VM, len(vms))
	for i, vm := range vms {
		all[i] = nwfilter.VM{PID: vm.PID, Filter: vm.filter(s)}
	}
	nwfilter.Restore(ctx, all, func(i int, err error) { failed(vms[i], err) })
	reshape(ctx, vms, failed)
}

func (filtered) Release(ctx context.Context, name string) error {
	return errors.Join(nwfilter.Release(ctx, name), servers.Release(ctx, name))
}

// HoldsGroups returns why this host cannot hold VMs to security groups; nil: it can.
func HoldsGroups(ctx context.Context) error { return nwfilter.CheckGroups(ctx) }

// filter is what the VM may be and whom it may reach. A MAC that is none is refused with the filter.
func (vm VM) filter(s Settings) nwfilter.Filter {
	f := nwfilter.Filter{Machine: vm.Name, MAC: vm.mac(), Isolated: vm.Isolated, Closed: vm.Closed,
		Gateway: vm.Gateways, DNS: vm.DNS, Send: vm.Bandwidth.Out, Groups: vm.Firewall}
	if len(vm.Addresses) > 0 { // of another one the site's server has the address
		f.Server = s.Host.DHCP[vm.Network].Hosts()
	}
	if kind, _ := vm.Network.Kind(); kind.Name != "bridge" { // the agent made it, and gave the host no address there
		f.Bridge = vm.Network.Bridge()
	}
	for _, p := range vm.Addresses {
		f.Addresses = append(f.Addresses, p.Addr())
		f.Local = append(f.Local, p.Masked())
	}
	return f
}

// mac is the VM's MAC; nil: it is none.
func (vm VM) mac() net.HardwareAddr {
	mac, _ := net.ParseMAC(vm.MAC)
	return mac
}
