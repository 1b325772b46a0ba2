package config

import (
	"fmt"
	"net/netip"
)

// UserNetwork is about VMs with the network user.
type UserNetwork struct {
	Allow []netip.AddrPort // services on the host's own addresses that they may reach
}

type userNetworkFile struct {
	Allow []string `toml:"allow"`
}

func (f userNetworkFile) userNetwork() (u UserNetwork, err error) {
	for _, text := range f.Allow {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Port() == 0 {
			return u, fmt.Errorf("user_network.allow: %q is not ADDRESS:PORT", text)
		}
		u.Allow = append(u.Allow, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return u, nil
}
