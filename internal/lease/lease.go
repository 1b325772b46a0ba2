// Package lease has what a VM on a site's network is given for as long as it lives: a host name, a MAC and addresses,
// as a site's registry of hosts has them; read from a list, or computed from a pool. It is pure: who has which lease
// is given to it.
package lease

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Lease is one entry of a registry.
type Lease struct {
	Name      string         // of the host, with its domain
	MAC       string         // as net.HardwareAddr writes it
	Addresses []netip.Prefix `json:",omitempty"` // one of each family at most; none: DHCP of the network knows it
}

// Parse reads a list: one lease a line, NAME MAC ADDRESS/BITS, and a second address of the other family, or none. A
// name without a domain gets this one. The error names the line.
func Parse(text []byte, domain string) ([]Lease, error) {
	var all []Lease
	var seen Taken
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		l, err := parse(words, domain)
		if err == nil && seen.Has(l) {
			err = fmt.Errorf("its name, MAC or address is in an earlier line, too")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		seen.Add(l)
		all = append(all, l)
	}
	return all, nil
}

func parse(words []string, domain string) (Lease, error) {
	if len(words) < 2 || len(words) > 4 {
		return Lease{}, fmt.Errorf("%d words: expected NAME MAC ADDRESS/BITS", len(words))
	}
	l := Lease{Name: withDomain(words[0], domain)}
	if err := CheckName(l.Name); err != nil {
		return l, err
	}
	mac, err := net.ParseMAC(words[1])
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return l, fmt.Errorf("%q is not the MAC of a card", words[1])
	}
	l.MAC = mac.String()
	for _, word := range words[2:] {
		p, err := netip.ParsePrefix(word)
		a := p.Addr()
		switch {
		case err != nil || a.Is4In6():
			return l, fmt.Errorf("%q is not ADDRESS/BITS", word)
		case !a.IsGlobalUnicast() || p.Bits() == 0:
			return l, fmt.Errorf("%v is not the address of a host in its network", p)
		case len(l.Addresses) > 0 && l.Addresses[0].Addr().Is4() == a.Is4():
			return l, fmt.Errorf("%v and %v are of one family", l.Addresses[0], p)
		}
		l.Addresses = append(l.Addresses, p)
	}
	return l, nil
}

func withDomain(name, domain string) string {
	if domain != "" && !strings.Contains(name, ".") {
		name += "." + domain
	}
	return strings.ToLower(name) // as DNS reads it, and cloud-init takes it
}

// CheckName refuses what no guest can be called. Linux has 64 bytes for it, whatever DNS has.
func CheckName(name string) error {
	const most = 64
	if !farm.IsHostname(name) || len(name) > most {
		return fmt.Errorf("no host is called %q", name)
	}
	return nil
}

// FromPools computes the leases of pools: the first address of each family goes with the first of the other. In names a
// star stands for the number of the lease, from 1.
func FromPools(pools []farm.AddressPool, names, domain string) []Lease {
	v4, v6 := families(pools)
	all := make([]Lease, max(len(v4), len(v6)))
	for i := range all {
		l := Lease{Name: withDomain(strings.ReplaceAll(names, "*", fmt.Sprint(i+1)), domain)}
		if i < len(v4) {
			l.Addresses, l.MAC = append(l.Addresses, v4[i]), farm.MAC(v4[i].Addr())
		}
		if i < len(v6) {
			if l.Addresses = append(l.Addresses, v6[i]); l.MAC == "" {
				l.MAC = mac6(v6[i].Addr())
			}
		}
		all[i] = l
	}
	return all
}

func families(pools []farm.AddressPool) (v4, v6 []netip.Prefix) {
	for _, p := range pools {
		for place := range p.Size() {
			if a := p.At(place); a.Addr().Is4() {
				v4 = append(v4, a)
			} else {
				v6 = append(v6, a)
			}
		}
	}
	return v4, v6
}

// mac6 is the hardware address that belongs to an IPv6 address: unique among those that differ in their last five bytes
// only. Its first byte says that it is locally administered and of one card, and differs from that of farm.MAC.
func mac6(a netip.Addr) string {
	b := a.As16()
	return net.HardwareAddr(slices.Concat([]byte{0x56}, b[11:])).String()
}

// CheckPools refuses pools that make no leases: two families of different sizes, or addresses that come twice.
func CheckPools(pools []farm.AddressPool) error {
	v4, v6 := families(pools)
	if len(v4) > 0 && len(v6) > 0 && len(v4) != len(v6) {
		return fmt.Errorf("%d IPv4 addresses and %d IPv6 addresses: each lease has one of both", len(v4), len(v6))
	}
	for i, p := range pools {
		for _, o := range pools[:i] {
			if p.First.Is4() == o.First.Is4() && !o.Last.Less(p.First) && !p.Last.Less(o.First) {
				return fmt.Errorf("%v and %v overlap", o, p)
			}
		}
	}
	return nil
}

// IPv4 and IPv6 return the address of the family; the zero value: the lease has none.
func (l Lease) IPv4() netip.Prefix { return l.of(true) }

// IPv6 is as IPv4.
func (l Lease) IPv6() netip.Prefix { return l.of(false) }

func (l Lease) of(v4 bool) netip.Prefix {
	for _, a := range l.Addresses {
		if a.Addr().Is4() == v4 {
			return a
		}
	}
	return netip.Prefix{}
}

// Same reports whether both are the same entry.
func (l Lease) Same(o Lease) bool {
	return l.Name == o.Name && l.MAC == o.MAC && slices.Equal(l.Addresses, o.Addresses)
}

// Taken is which names, MACs and addresses VMs have. The zero value is ready to use.
type Taken struct{ words map[string]bool }

// Add takes a lease. A part of it that is empty takes nothing.
func (t *Taken) Add(l Lease) {
	if t.words == nil {
		t.words = map[string]bool{}
	}
	for _, w := range l.parts() {
		t.words[w] = true
	}
}

// Has reports whether a part of a lease is taken: no two VMs share a name, a MAC or an address.
func (t *Taken) Has(l Lease) bool {
	return slices.ContainsFunc(l.parts(), func(w string) bool { return t.words[w] })
}

func (l Lease) parts() (words []string) {
	if l.Name != "" {
		words = append(words, "name "+l.Name)
	}
	if l.MAC != "" {
		words = append(words, "mac "+l.MAC)
	}
	for _, a := range l.Addresses {
		words = append(words, a.Addr().String())
	}
	return words
}
