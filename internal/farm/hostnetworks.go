package farm

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// HostNetworks is what a host may carry of the networks that its agent makes. The zero value: none of them.
type HostNetworks struct {
	// VLANs by the card that has them, or by the bridge of Open vSwitch, with OpenVSwitch before its name
	Trunks  map[string]IDs
	Macvtap []string // cards that VMs may share with the host
	SRIOV   []string // cards of which VMs may have virtual functions
	Overlay Overlay
	// that VMs may book each way, all together; 0: the speed of the uplink's card
	Bandwidth Rate
	DHCP      map[Network]DHCPServer // networks on which VMs here get their addresses by DHCP of this host
}

// OpenVSwitch stands before the name of a bridge of Open vSwitch where one of a card may stand.
const OpenVSwitch = "ovs:"

// Overlay is a host's part in VXLAN networks.
type Overlay struct {
	Local netip.Addr   // the host's address among the peers; the zero value: the host has none
	Peers []netip.Addr // the other hosts, and Local where one list is for all
	VNIs  IDs
}

// Equal reports whether both are the same part.
func (o Overlay) Equal(p Overlay) bool {
	return o.Local == p.Local && slices.Equal(o.Peers, p.Peers) && slices.Equal(o.VNIs, p.VNIs)
}

// MaxVLAN and MaxVNI are the highest numbers: IEEE 802.1Q keeps 4095, and a VNI has 24 bits (RFC 7348).
const (
	MaxVLAN = 4094
	MaxVNI  = 1<<24 - 1
)

// Validate refuses what cannot be. The error says which key is wrong.
func (h HostNetworks) Validate() error {
	cards := slices.Sorted(maps.Keys(h.Trunks))
	for i, card := range cards {
		if !validInterface(strings.TrimPrefix(card, OpenVSwitch)) {
			return fmt.Errorf("trunks: no card is called %q", card)
		}
		for _, other := range cards[:i] {
			if h.Trunks[card].Meets(h.Trunks[other]) {
				return fmt.Errorf("trunks: %s and %s have the same VLANs: each is on one card", other, card)
			}
		}
	}
	for key, cards := range map[string][]string{"macvtap": h.Macvtap, "sriov": h.SRIOV} {
		for _, card := range cards {
			if !validInterface(card) {
				return fmt.Errorf("%s: no card is called %q", key, card)
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(h.DHCP)) {
		if err := h.DHCP[n].validate(n); err != nil {
			return fmt.Errorf("dhcp.%q: %w", n, err)
		}
	}
	return h.Overlay.validate()
}

func (o Overlay) validate() error {
	if !o.Local.IsValid() {
		if len(o.Peers)+len(o.VNIs) > 0 {
			return fmt.Errorf("overlay.local: this host's address is missing")
		}
		return nil
	}
	for _, peer := range append(slices.Clone(o.Peers), o.Local) {
		switch {
		case peer.IsUnspecified() || peer.IsMulticast() || peer.Zone() != "":
			return fmt.Errorf("overlay: %v is not the address of a host", peer)
		case peer.Is4() != o.Local.Is4():
			return fmt.Errorf("overlay: %v and %v are of two families: one VXLAN network has one", o.Local, peer)
		}
	}
	if len(o.VNIs) == 0 {
		return fmt.Errorf("overlay.vnis: the numbers of the networks are missing")
	}
	return nil
}

// Trunk is the card, or the bridge of Open vSwitch, that has a VLAN.
func (h HostNetworks) Trunk(vlan int) (card string, ok bool) {
	for _, card := range slices.Sorted(maps.Keys(h.Trunks)) {
		if h.Trunks[card].Has(vlan) {
			return card, true
		}
	}
	return "", false
}

// Carried is how a host tells a server which of these networks it may carry: as "vlan:100-199". Macvtap is not in it,
// for the fleet has no network of a single host.
func (h HostNetworks) Carried() []string {
	var all []string
	for _, card := range slices.Sorted(maps.Keys(h.Trunks)) {
		all = append(all, vlanKind+":"+h.Trunks[card].String())
	}
	if h.Overlay.Local.IsValid() {
		all = append(all, vxlanKind+":"+h.Overlay.VNIs.String())
	}
	return all
}

// CarriedBy reports whether a network is among those that a host says it carries: names of its bridges, and what
// Carried returns.
func (n Network) CarriedBy(carried []string) bool {
	kind, ok := n.Kind()
	if !ok || kind.most == 0 {
		return ok && slices.Contains(carried, n.Bridge())
	}
	return slices.ContainsFunc(carried, func(text string) bool {
		name, of, _ := strings.Cut(text, ":")
		ids, err := ParseIDs(of, kind.most)
		return name == kind.Name && err == nil && ids.Has(n.ID())
	})
}
