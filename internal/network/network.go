// Package network does on a host what the networks of its VMs need: one Kind for each, in the list Kinds. What follows
// from a network's name alone is in farm.NetworkKinds.
package network

import (
	"context"
	"errors"
	"net/netip"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network/usernet"
)

// Kinds are all kinds of networks, by their names in farm.NetworkKinds.
var Kinds = map[string]Kind{
	"none":    plain{},
	"user":    &user{},
	"bridge":  bridge{},
	"vlan":    &made{name: "vlan", port: vlanPort},
	"vxlan":   &made{name: "vxlan", port: vxlanPort},
	"macvtap": macvtap{},
	"sriov":   sriov{},
}

// Kind is all that a host does for VMs on one kind of network; networktest has the contract. Nothing is kept in memory:
// an agent that was restarted goes on with what the kernel has.
type Kind interface {
	// Check refuses a network that this host does not have, or may not carry, before anything is made for a VM on it.
	Check(n farm.Network, s Settings) error
	// Prepare makes what a machine needs before its process is there, and returns its card. It may come again for a
	// VM, with nothing released before.
	Prepare(ctx context.Context, vm VM, s Settings) (hyper.Card, error)
	// Fence keeps the VM from what it must not reach. The process is there, and has run no instruction of the guest.
	Fence(ctx context.Context, vm VM, s Settings) error
	// Restore brings back what VMs that run have lost, because somebody flushed the host's rules, or settings have
	// changed. It comes for all VMs of the kind at once, when an agent starts and every few seconds.
	Restore(ctx context.Context, vms []VM, s Settings, failed func(VM, error))
	// Release removes all that was made for the machine of this name, whose process is gone, and nothing that another
	// one needs. One for which nothing was made, or that is released already, is no error.
	Release(ctx context.Context, name string) error
}

// VM is a machine that has a network.
type VM struct {
	Name    string // of the machine: no other one on this host has it
	Network farm.Network
	MAC     string // "": the hypervisor chooses
	PID     int    // of its process, for Fence and Restore

	// On a network that it shares with others:
	Host      string         // what it is called there, with its domain; "": nobody knows
	Addresses []netip.Prefix // that it was given, with the length of their prefix: it has no others
	Isolated  bool           // it reaches no other isolated VM of this host
	Closed    bool           // it reaches the outside, and of the network its gateway and name servers alone
	Gateways  []netip.Addr   // of each family
	DNS       []netip.Addr
	Bandwidth farm.Bandwidth // that it is held to
	Firewall  *farm.Firewall // of its security groups; nil: it is in none
}

// Settings are what a site configures of networks.
type Settings struct {
	VMUIDs farm.UIDs         // users of VMs
	Reach  Reach             // what of the host and its site VMs with the network user reach
	Host   farm.HostNetworks // what the host may carry of the networks that are made here
}

// Reach is what of the host and its site VMs with the network user reach.
type Reach = usernet.Reach

// Of returns the kind of a network. One that there is not has no card.
func Of(n farm.Network) Kind {
	if k, ok := n.Kind(); ok {
		return Kinds[k.Name]
	}
	return plain{}
}

// plain is a kind for which a host does nothing: no network. Others have it for what they leave out.
type plain struct{}

func (plain) Check(farm.Network, Settings) error                        { return nil }
func (plain) Prepare(context.Context, VM, Settings) (hyper.Card, error) { return hyper.Card{}, nil }
func (plain) Fence(context.Context, VM, Settings) error                 { return nil }
func (plain) Restore(context.Context, []VM, Settings, func(VM, error))  {}
func (plain) Release(context.Context, string) error                     { return nil }

// Release releases a machine of which nobody knows any more what network it had.
func Release(ctx context.Context, name string) error {
	var errs []error
	for _, k := range Kinds {
		errs = append(errs, k.Release(ctx, name))
	}
	return errors.Join(errs...)
}

// Restore restores the networks of VMs of all kinds. A kind without VMs removes what it has of those that have gone.
// failed gets an empty VM for a failure that is not of one VM alone.
func Restore(ctx context.Context, vms []VM, s Settings, failed func(VM, error)) {
	kinds := map[string][]VM{}
	for _, vm := range vms {
		k, _ := vm.Network.Kind()
		kinds[k.Name] = append(kinds[k.Name], vm)
	}
	for name, k := range Kinds {
		k.Restore(ctx, kinds[name], s, failed)
	}
	if err := restoreServers(ctx, vms, s); err != nil {
		failed(VM{}, err)
	}
}
