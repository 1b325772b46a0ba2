package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lease"
)

// SiteNetwork is a network of the site on which VMs of jobs and workers have leases.
type SiteNetwork struct {
	Name      string
	On        farm.Network // what it is on the host
	List      string       // path of the list of leases; "": they are computed
	Pools     []farm.AddressPool
	HostNames string // of computed leases; see lease.FromPools
	Domain    string // of names without one
	Gateways  []netip.Addr
	DNS       []netip.Addr
	Isolate   bool // its VMs of this host do not reach each other
	Closed    bool // they reach the outside, and of the network only gateways and name servers

	Workers farm.AddressPool // of [worker], where that is on the same network of the host: no lease has these
}

type siteNetworkFile struct {
	Network    string   `toml:"network"`
	Leases     string   `toml:"leases"`
	Addresses  []string `toml:"addresses"`
	HostNames  string   `toml:"host_names"`
	Domain     string   `toml:"domain"`
	Gateways   []string `toml:"gateways"`
	DNS        []string `toml:"dns"`
	Isolate    bool     `toml:"isolate"`
	Closed     bool     `toml:"closed"`
	Unfiltered bool     `toml:"unfiltered"`
}

// siteNetworks checks the tables [networks.NAME].
func siteNetworks(files map[string]siteNetworkFile) (map[string]SiteNetwork, error) {
	all := map[string]SiteNetwork{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n, err := files[name].network(name)
		if err != nil {
			return nil, fmt.Errorf("networks.%s: %w", name, err)
		}
		all[name] = n
	}
	return all, nil
}

func (f siteNetworkFile) network(name string) (n SiteNetwork, err error) {
	n = SiteNetwork{Name: name, On: farm.Network(f.Network), List: f.Leases, HostNames: f.HostNames, Domain: f.Domain,
		Isolate: f.Isolate, Closed: f.Closed}
	if err := farm.CheckName("network", name); err != nil {
		return n, err
	}
	if _, ok := farm.Network(name).Kind(); ok {
		return n, fmt.Errorf("this is the name of a kind of network")
	}
	kind, ok := n.On.Kind()
	switch {
	case !ok || kind.Jobs:
		return n, fmt.Errorf("network: %q is not one on which VMs have addresses, as bridge:NAME or vlan:ID", f.Network)
	case n.List != "" && !filepath.IsAbs(n.List):
		return n, fmt.Errorf("leases: %q is not an absolute path", n.List)
	case (n.List == "") == (len(f.Addresses) == 0):
		return n, fmt.Errorf("either `leases`, a file, or `addresses`")
	case n.List != "" && n.HostNames != "":
		return n, fmt.Errorf("host_names: the names are in `leases`")
	case n.Domain != "" && !farm.IsHostname(n.Domain):
		return n, fmt.Errorf("domain: %q", n.Domain)
	}
	// Whoever lets jobs have a network where nothing filters what they send has to say so.
	if kind.Raw != f.Unfiltered {
		return n, fmt.Errorf("unfiltered: macvtap and sriov, which nothing filters, need it; other networks are filtered")
	} else if kind.Raw && (f.Isolate || f.Closed) {
		return n, fmt.Errorf("isolate, closed: not with %s, which nothing filters", kind.Name)
	}
	if err := n.pools(f.Addresses); err != nil {
		return n, err
	}
	return n, n.servers(f)
}

// apart keeps leases from the addresses of [worker] on the same network of the host, which are given without leases.
func apart(networks map[string]SiteNetwork, w Worker) error {
	if w.Controller == "" || w.Site != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		n := networks[name]
		if n.On != w.Network {
			continue
		}
		for _, p := range n.Pools {
			if p.Has(w.Addresses.First) || w.Addresses.Has(p.First) {
				return fmt.Errorf("worker.addresses: %v and networks.%s.addresses: %v are both on %s and have addresses "+
					"in common", w.Addresses, name, p, n.On)
			}
		}
		n.Workers = w.Addresses
		networks[name] = n
	}
	return nil
}

// pools reads ranges of addresses.
func (n *SiteNetwork) pools(texts []string) error {
	for _, text := range texts {
		p, err := farm.ParseAnyAddressPool(text)
		if err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
		n.Pools = append(n.Pools, p)
	}
	if err := lease.CheckPools(n.Pools); err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	if n.List != "" {
		return nil
	}
	if strings.Count(n.HostNames, "*") != 1 {
		return fmt.Errorf("host_names: %q has not one star, for the number of a lease, as wn-*", n.HostNames)
	}
	all := lease.FromPools(n.Pools, n.HostNames, n.Domain)
	if err := lease.CheckName(all[len(all)-1].Name); err != nil {
		return fmt.Errorf("host_names: %w", err)
	}
	var taken lease.Taken
	for _, l := range all {
		if taken.Has(l) {
			return fmt.Errorf("addresses: two leases have the MAC %s: IPv6 addresses differ in their last 40 bits", l.MAC)
		}
		taken.Add(l)
	}
	return nil
}

// servers reads gateways, of which there is one of each family, and name servers.
func (n *SiteNetwork) servers(f siteNetworkFile) (err error) {
	if n.Gateways, err = addresses("gateways", f.Gateways); err != nil {
		return err
	}
	if len(n.Gateways) > 2 || len(n.Gateways) == 2 && n.Gateways[0].Is4() == n.Gateways[1].Is4() {
		return fmt.Errorf("gateways: %v: one of IPv4, and one of IPv6", n.Gateways)
	}
	for _, g := range n.Gateways {
		for _, p := range n.Pools {
			if p.Has(g) {
				return fmt.Errorf("gateways: %v is among the addresses %v that VMs get", g, p)
			}
			if g.Is4() == p.First.Is4() && !g.IsLinkLocalUnicast() &&
				!netip.PrefixFrom(p.First, p.Bits).Masked().Contains(g) {
				return fmt.Errorf("gateways: %v is not in the network of %v", g, p)
			}
		}
	}
	n.DNS, err = addresses("dns", f.DNS)
	return err
}

func addresses(key string, texts []string) (all []netip.Addr, err error) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return nil, fmt.Errorf("%s: %q is not the address of a host", key, text)
		}
		all = append(all, a.Unmap())
	}
	return all, nil
}
