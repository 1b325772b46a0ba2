package farm

import (
	"net/netip"
	"slices"
	"strings"
)

// FleetNetwork is a network that VMs of the fleet may have.
type FleetNetwork struct {
	Name      string
	Bridge    string // on each host that carries it; "": it is a VLAN or a VXLAN network
	VLAN      int    // 0: none
	VXLAN     int    // VNI; 0: none
	Addresses []AddressPool
	Gateway   string // "": none
	DNS       []string
	Domain    string   // of host names: "vm-12.example.org"
	Names     []string // host names to lease, in order; none: the VM's own name
	Isolate   bool     // its VMs of one host do not reach each other
	Closed    bool     // only the outside can be reached, not the local network
	Hosts     []string // patterns of hosts that carry it; none: all that can
	Revision  int64
}

// OnHost is what the network is on a host; "": nothing. A bridge goes first: earlier releases stored a VLAN beside it,
// which hosts never carried out.
func (n FleetNetwork) OnHost() Network {
	switch {
	case n.Bridge != "":
		return NetworkBridge(n.Bridge)
	case n.VLAN != 0:
		return NetworkVLAN(n.VLAN)
	case n.VXLAN != 0:
		return NetworkVXLAN(n.VXLAN)
	}
	return ""
}

// Validate refuses a network that cannot be.
func (n FleetNetwork) Validate() error {
	if err := CheckName("network", n.Name); err != nil {
		return err
	}
	bad := func(format string, args ...any) error { return badFarm("network", n.Name, format, args...) }
	for i, p := range n.Addresses {
		network := netip.PrefixFrom(p.First, p.Bits).Masked()
		for _, o := range n.Addresses[:i] {
			if !o.Last.Less(p.First) && !p.Last.Less(o.First) {
				return bad("addresses %v and %v overlap", o, p)
			}
			if other := netip.PrefixFrom(o.First, o.Bits).Masked(); other != network {
				return bad("addresses %v are in %v, and %v in %v: one network has one prefix", o, other, p, network)
			}
		}
		if gateway, err := netip.ParseAddr(n.Gateway); err == nil && !network.Contains(gateway) {
			return bad("gateway %s is not in %v", n.Gateway, network)
		} else if err == nil && !gateway.Less(p.First) && !p.Last.Less(gateway) {
			return bad("gateway %s is among the addresses %v that VMs get", n.Gateway, p)
		}
	}
	for _, address := range append(slices.Clone(n.DNS), n.Gateway) {
		if _, err := netip.ParseAddr(address); err != nil && address != "" {
			return bad("invalid address %q", address)
		}
	}
	switch {
	case n.Bridge != "" && !NetworkBridge(n.Bridge).valid():
		return bad("no bridge can be called %q", n.Bridge)
	case n.VLAN < 0 || n.VLAN > MaxVLAN:
		return bad("no VLAN has the number %d", n.VLAN)
	case n.VXLAN < 0 || n.VXLAN > MaxVNI:
		return bad("no VXLAN network has the number %d", n.VXLAN)
	case n.VXLAN != 0 && (n.Bridge != "" || n.VLAN != 0):
		return bad("`vxlan` is a network of its own: leave `bridge` and `vlan` out")
	case n.OnHost() == "":
		return bad("it has no `bridge`, no `vlan` and no `vxlan`")
	case n.Domain != "" && !hostname(n.Domain, true):
		return bad("no domain is called %q", n.Domain)
	case twice(n.Names) != "":
		return bad("host name %s twice", twice(n.Names))
	case badPattern(n.Hosts) != "":
		return bad("hosts: invalid pattern %q", badPattern(n.Hosts))
	}
	for _, name := range n.Names {
		if !hostname(name, false) {
			return bad("no host is called %q", name)
		}
	}
	return nil
}

// IsHostname reports whether a host may be called so, with or without its domain.
func IsHostname(name string) bool { return hostname(name, true) }

// hostname reports whether a name has labels as RFC 1123 has them; with dots, or a single one.
func hostname(name string, dots bool) bool {
	if len(name) > 253 || !dots && strings.Contains(name, ".") {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		odd := func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, odd) {
			return false
		}
	}
	return true
}
