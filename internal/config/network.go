package config

import (
	"fmt"
	"net/netip"

	"github.com/grange-project/grange/internal/farm"
)

// networkFile is which networks that the agent makes this host may carry.
type networkFile struct {
	Trunks  map[string]string `toml:"trunks"`
	Macvtap []string          `toml:"macvtap"`
	SRIOV   []string          `toml:"sriov"`
	Overlay overlayFile       `toml:"overlay"`
	// Bandwidth is in bits a second, "10G".
	Bandwidth string              `toml:"bandwidth"`
	DHCP      map[string]dhcpFile `toml:"dhcp"`
}

type dhcpFile struct {
	Addresses []string `toml:"addresses"`
	Domain    string   `toml:"domain"`
	Forward   []string `toml:"forward"`
}

type overlayFile struct {
	Local string   `toml:"local"`
	Peers []string `toml:"peers"`
	VNIs  string   `toml:"vnis"`
}

func (f networkFile) networks() (n farm.HostNetworks, err error) {
	n.Macvtap, n.SRIOV = f.Macvtap, f.SRIOV
	if f.Bandwidth != "" {
		if n.Bandwidth, err = farm.ParseRate(f.Bandwidth); err != nil {
			return n, fmt.Errorf("network.bandwidth: %w", err)
		}
	}
	for card, vlans := range f.Trunks {
		if n.Trunks == nil {
			n.Trunks = map[string]farm.IDs{}
		}
		if n.Trunks[card], err = farm.ParseIDs(vlans, farm.MaxVLAN); err != nil {
			return n, fmt.Errorf("network.trunks: %s: %w", card, err)
		}
	}
	if n.Overlay, err = f.Overlay.overlay(); err != nil {
		return n, fmt.Errorf("network.overlay.%w", err)
	}
	for name, d := range f.DHCP {
		if n.DHCP == nil {
			n.DHCP = map[farm.Network]farm.DHCPServer{}
		}
		if n.DHCP[farm.Network(name)], err = d.server(); err != nil {
			return n, fmt.Errorf("network.dhcp.%q: %w", name, err)
		}
	}
	if err := n.Validate(); err != nil {
		return n, fmt.Errorf("network.%w", err)
	}
	return n, nil
}

func (f overlayFile) overlay() (o farm.Overlay, err error) {
	if f.Local != "" {
		if o.Local, err = netip.ParseAddr(f.Local); err != nil {
			return o, fmt.Errorf("local: %w", err)
		}
		o.Local = o.Local.Unmap()
	}
	for _, text := range f.Peers {
		peer, err := netip.ParseAddr(text)
		if err != nil {
			return o, fmt.Errorf("peers: %w", err)
		}
		o.Peers = append(o.Peers, peer.Unmap())
	}
	if f.VNIs != "" {
		if o.VNIs, err = farm.ParseIDs(f.VNIs, farm.MaxVNI); err != nil {
			return o, fmt.Errorf("vnis: %w", err)
		}
	}
	return o, nil
}

func (f dhcpFile) server() (d farm.DHCPServer, err error) {
	d.Domain = f.Domain
	for _, text := range f.Addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return d, fmt.Errorf("addresses: %q is not ADDRESS/BITS", text)
		}
		d.Addresses = append(d.Addresses, p)
	}
	d.Forward, err = addresses("forward", f.Forward)
	return d, err
}
