package network

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// The bytes that VXLAN puts before a frame, with its Ethernet header, and the port that IANA gave it (RFC 7348).
const (
	vxlanHeadersV4 = 50
	vxlanHeadersV6 = 70
	vxlanPortIANA  = "4789"
)

// vxlanPort is the port of a VXLAN network: a device that carries frames to the other hosts in UDP, each frame for
// somebody unknown to all of them. It needs no multicast of the hosts' own network.
func vxlanPort(n farm.Network, s Settings) (port, error) {
	o := s.Host.Overlay
	if !o.VNIs.Has(n.ID()) {
		return port{}, notCarried(n, "[network.overlay] of its agent.toml does not have it",
			"let the network's `hosts` say which hosts carry it, or name the VNI there")
	}
	below, err := interfaceByAddress(o.Local.String())
	if err != nil {
		return port{}, err
	}
	if below == nil {
		return port{}, notCarried(n, fmt.Sprintf("it does not have the address %v of [network.overlay]", o.Local),
			"correct `local` in its agent.toml")
	}
	headers := vxlanHeadersV4
	if o.Local.Is6() {
		headers = vxlanHeadersV6
	}
	p := port{add: []string{"type", "vxlan", "id", strconv.Itoa(n.ID()), "local", o.Local.String(), "dstport",
		vxlanPortIANA}, lacks: "VXLAN, the module vxlan", mtu: below.MTU - headers}
	for _, peer := range o.Peers {
		if peer != o.Local && !slices.Contains(p.peers, peer.String()) {
			p.peers = append(p.peers, peer.String())
		}
	}
	return p, nil
}
