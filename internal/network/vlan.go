package network

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// vlanPort is the port of a VLAN: a sub-interface of the card whose VLANs the host may carry, which puts the tag on and
// takes it off; or one end of a cable to a bridge of Open vSwitch, which does.
func vlanPort(n farm.Network, s Settings) (port, error) {
	id := n.ID()
	card, ok := s.Host.Trunk(id)
	if !ok {
		return port{}, notCarried(n, "no card has the VLAN in [network.trunks] of its agent.toml",
			"let the network's `hosts` say which hosts carry it, or name the VLAN there")
	}
	bridge, ovs := strings.CutPrefix(card, farm.OpenVSwitch)
	if ovs {
		return switchPort(n, bridge)
	}
	below, err := net.InterfaceByName(card)
	if err != nil {
		return port{}, notCarried(n, fmt.Sprintf("it has no card %s, which [network.trunks] names", card),
			"correct [network.trunks] of its agent.toml")
	}
	return port{add: []string{"link", card, "type", "vlan", "id", strconv.Itoa(id)}, lacks: "802.1Q, the module 8021q",
		card: card, mtu: toldMTU(below.MTU)}, nil
}
