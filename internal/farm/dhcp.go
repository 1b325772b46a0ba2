package farm

import (
	"fmt"
	"net/netip"
	"slices"
)

// DHCPServer is a host's own server of DHCP, router advertisements and DNS on one network, for the VMs of this host.
type DHCPServer struct {
	Addresses []netip.Prefix // of the server, in the network's prefixes: one of each family at most
	Domain    string         // of the VMs' names: what is not known of it is asked of nobody else; "": none
	Forward   []netip.Addr   // name servers for all other names; none: it knows the VMs' names alone
}

// Equal reports whether both are the same.
func (d DHCPServer) Equal(o DHCPServer) bool {
	return slices.Equal(d.Addresses, o.Addresses) && d.Domain == o.Domain && slices.Equal(d.Forward, o.Forward)
}

// Hosts are the addresses without their prefixes.
func (d DHCPServer) Hosts() (all []netip.Addr) {
	for _, p := range d.Addresses {
		all = append(all, p.Addr())
	}
	return all
}

// slaacBits is the length of the prefixes that routers announce (RFC 4862).
const slaacBits = 64

func (d DHCPServer) validate(n Network) error {
	if n.Bridge() == "" {
		return fmt.Errorf("it is for bridge:NAME, vlan:ID and vxlan:VNI")
	}
	if len(d.Addresses) == 0 {
		return fmt.Errorf("addresses: the server's own, one of each family that it serves, are missing")
	}
	for i, p := range d.Addresses {
		a := p.Addr()
		switch {
		case !a.IsGlobalUnicast() || a.Is4In6() || p.Masked() == p:
			return fmt.Errorf("addresses: %v is not the address of a host in its network", p)
		case a.Is4() && (p.Bits() == 0 || p.Bits() > 30), a.Is6() && p.Bits() != slaacBits:
			return fmt.Errorf("addresses: %v: a prefix of IPv4 has 1 to 30 bits, one of IPv6 has 64", p)
		case i > 1 || i == 1 && d.Addresses[0].Addr().Is4() == a.Is4():
			return fmt.Errorf("addresses: one of each family at most")
		}
	}
	if d.Domain != "" && !IsHostname(d.Domain) {
		return fmt.Errorf("domain: %q", d.Domain)
	}
	for _, a := range d.Forward {
		if !a.IsGlobalUnicast() || a.Zone() != "" || slices.Contains(d.Hosts(), a) {
			return fmt.Errorf("forward: %v is not the address of another name server", a)
		}
	}
	return nil
}
