package seed

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
)

// Network is what the VM's one network card is told.
type Network struct {
	MAC     string       // by which the card is found
	Address netip.Prefix // IPv4, with the length of its network's prefix
	Gateway netip.Addr   // the zero value: none
	DNS     []netip.Addr // may be empty
	Domain  string       // searched for names; "": none
}

// networkConfig is version 2 of cloud-init's, which is netplan's.
type networkConfig struct {
	Version   int             `json:"version"`
	Ethernets map[string]card `json:"ethernets"`
}

// card has a name of its own because renderers that know no matching write the name into a file, and gateway4, which
// netplan would like to see as a route, because every renderer of every release knows it.
type card struct {
	Match       match        `json:"match"`
	Name        string       `json:"set-name"`
	DHCP        bool         `json:"dhcp4"`
	Addresses   []string     `json:"addresses"`
	Gateway     string       `json:"gateway4,omitempty"`
	NameServers *nameServers `json:"nameservers,omitempty"`
}

type match struct {
	MAC string `json:"macaddress"`
}

type nameServers struct {
	Addresses []string `json:"addresses,omitempty"`
	Search    []string `json:"search,omitempty"`
}

// config is cloud-init's network-config: JSON, which is YAML.
func (n Network) config() ([]byte, error) {
	mac, err := net.ParseMAC(n.MAC)
	switch {
	case err != nil:
		return nil, bad("invalid MAC address %q", n.MAC)
	case !n.Address.IsValid() || !n.Address.Addr().Is4():
		return nil, bad("invalid IPv4 prefix %v", n.Address)
	case n.Gateway.IsValid() && !n.Address.Contains(n.Gateway):
		return nil, bad("gateway %v is not in the network of %v", n.Gateway, n.Address)
	case n.Domain != "" && !validHostname.MatchString(n.Domain):
		return nil, bad("invalid domain %q", n.Domain)
	}
	c := card{Match: match{strings.ToLower(mac.String())}, Name: "eth0", Addresses: []string{n.Address.String()}}
	if n.Gateway.IsValid() {
		c.Gateway = n.Gateway.String()
	}
	if len(n.DNS) > 0 || n.Domain != "" {
		c.NameServers = &nameServers{}
		for _, a := range n.DNS {
			c.NameServers.Addresses = append(c.NameServers.Addresses, a.String())
		}
		if n.Domain != "" {
			c.NameServers.Search = []string{n.Domain}
		}
	}
	text, err := json.MarshalIndent(networkConfig{2, map[string]card{c.Name: c}}, "", " ")
	return append(text, '\n'), err
}
