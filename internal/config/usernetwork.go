package config

import (
	"fmt"
	"net/netip"
)

// UserNetwork is what VMs with the network user reach of the host and its site.
type UserNetwork struct {
	Allow  []netip.AddrPort // services on the host's own addresses, and in closed networks
	Closed []netip.Prefix   // networks that they do not reach
	Link   bool             // the networks that the host itself is on are closed, too
}

type userNetworkFile struct {
	Allow  []string  `toml:"allow"`
	Closed *[]string `toml:"closed"`
}

// ofLink stands for the networks that the host is on, wherever that is.
const ofLink = "link"

func (f userNetworkFile) userNetwork() (u UserNetwork, err error) {
	for _, text := range f.Allow {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Port() == 0 {
			return u, fmt.Errorf("user_network.allow: %q is not ADDRESS:PORT", text)
		}
		u.Allow = append(u.Allow, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	if f.Closed == nil {
		f.Closed = &[]string{ofLink}
	}
	for _, text := range *f.Closed {
		if text == ofLink {
			u.Link = true
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return u, fmt.Errorf(`user_network.closed: %q is neither a network, as 10.0.0.0/8, nor "link"`, text)
		}
		u.Closed = append(u.Closed, p)
	}
	return u, nil
}
