package server

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// leases gives VMs names and addresses of one network, in one transaction: what it gave is taken.
type leases struct {
	network farm.FleetNetwork
	others  []farm.FleetNetwork // the farm's other networks: a MAC must be no other VM's wherever it is
	address map[netip.Prefix]bool
	host    map[string]bool
}

// newLeases begins with what VMs hold.
func newLeases(network farm.FleetNetwork, others []farm.FleetNetwork, held []farm.Lease) *leases {
	l := &leases{network: network, others: others, address: map[netip.Prefix]bool{}, host: map[string]bool{}}
	for _, h := range held {
		l.take(h)
	}
	return l
}

func (l *leases) take(h farm.Lease) {
	if h.Address.IsValid() {
		l.address[h.Address] = true
	}
	l.host[h.Hostname] = true
}

// give is a lease for a VM. A valid address is asked for; whether another VM has it is the caller's to find out.
func (l *leases) give(vm farm.VM, asked netip.Addr) (farm.Lease, error) {
	lease := farm.Lease{Network: l.network.Name}
	var err error
	if lease.Hostname, err = l.name(vm); err != nil {
		return lease, err
	}
	if lease.Address, err = l.addressFor(asked); err != nil {
		return lease, err
	}
	lease.MAC = l.mac(vm.ID, lease.Address)
	l.take(lease)
	return lease, nil
}

// addressFor is the address that was asked for, with the length of its pool's prefix, or the lowest that is free. A network without pools
// leases none: its VMs ask the network itself.
func (l *leases) addressFor(asked netip.Addr) (netip.Prefix, error) {
	pools := l.network.Addresses
	if asked.IsValid() {
		i := slices.IndexFunc(pools, func(p farm.AddressPool) bool { return has(p, asked) })
		if i < 0 {
			return netip.Prefix{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeAddressTaken, Message: fmt.Sprintf("network %s leases no address %s", l.network.Name, asked),
				Hint: "name an address of the network's pools, or none"}
		}
		return netip.PrefixFrom(asked, pools[i].Bits), nil
	}
	for _, p := range pools {
		if lease, ok := p.Lease(func(a netip.Prefix) bool { return l.address[a] }); ok {
			return lease, nil
		}
	}
	if len(pools) == 0 {
		return netip.Prefix{}, nil
	}
	return netip.Prefix{}, l.empty("address")
}

func has(p farm.AddressPool, a netip.Addr) bool {
	return p.First.IsValid() && a.Is4() && !a.Less(p.First) && !p.Last.Less(a)
}

func (l *leases) empty(what string) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeNoLease, Message: fmt.Sprintf("network %s has no %s left", l.network.Name, what),
		Hint: "delete VMs that are not needed, or ask an administrator for more"}
}

// name is the first free name of the network's list, or the VM's own. Two projects may have VMs of one name on one network: the second is
// called NAME-PROJECT there.
func (l *leases) name(vm farm.VM) (string, error) {
	if len(l.network.Names) > 0 {
		for _, n := range l.network.Names {
			if full := l.full(n); !l.host[full] {
				return full, nil
			}
		}
		return "", l.empty("host name")
	}
	for _, n := range []string{vm.Name, vm.Name + "-" + hostLabel(vm.Project)} {
		if full := l.full(n); checkName(n) == nil && !l.host[full] {
			return full, nil
		}
	}
	return "", &farm.Error{Kind: farm.Conflict, Code: farm.CodeAddressTaken, Message: fmt.Sprintf("another VM on network %s is called %s", l.network.Name, l.full(vm.Name)), Hint: "take another name"}
}

// hostLabel is a project's name as a part of a host name.
func hostLabel(project string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(project))
}

func (l *leases) full(name string) string {
	if l.network.Domain == "" || strings.HasSuffix(name, "."+l.network.Domain) {
		return name
	}
	return name + "." + l.network.Domain
}

// mac is the one that belongs to the address, so that a VM which gets an address again is the same card to the network. Where there is no
// address, or another network leases the same, it is made of the VM's ID.
func (l *leases) mac(id string, address netip.Prefix) string {
	shared := func(n farm.FleetNetwork) bool {
		return slices.ContainsFunc(n.Addresses, func(p farm.AddressPool) bool { return has(p, address.Addr()) })
	}
	if !address.IsValid() || slices.ContainsFunc(l.others, shared) {
		return macOfID(id)
	}
	return farm.MAC(address.Addr())
}

// macOfID is a locally administered address of one card. Those of farm.MAC begin with 52, so the two never meet.
func macOfID(id string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) < 16 {
		return ""
	}
	return fmt.Sprintf("56:%02x:%02x:%02x:%02x:%02x", raw[0], raw[1], raw[2], raw[3], raw[4])
}
