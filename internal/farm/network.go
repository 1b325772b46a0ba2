package farm

import (
	"slices"
	"strconv"
	"strings"
)

// Network is how a VM reaches others: the name of a kind, and for some a colon and what of the host it is.
type Network string

// Networks.
const (
	NetworkNone Network = "none"
	NetworkUser Network = "user" // QEMU's user-mode network: outgoing connections only
)

// Kinds of networks that are more than a word.
const (
	bridgeKind = "bridge"
	vlanKind   = "vlan"
	vxlanKind  = "vxlan"
)

// NetworkKind is what follows from the name of a network alone, on any host. What a host does for a VM on one is in
// internal/network.
type NetworkKind struct {
	Name     string
	Of       string            // what stands behind the colon, for people: "NAME"; "": nothing does
	valid    func(string) bool // of what stands there; nil where that is nothing, or a number
	most     int               // the highest number that may stand there; 0: not a number
	Local    bool              // it is of one host alone: a VM on it cannot move
	Jobs     bool              // jobs may ask for it; others are for VMs that somebody gives an address
	UserMode bool              // a guest on it has the addresses of QEMU's user-mode network
	Limited  bool              // the host holds VMs on it to their bandwidth
	Raw      bool              // the host sees no frame of VMs on it, and filters none
}

// NetworkKinds are all kinds of networks.
var NetworkKinds = []NetworkKind{
	{Name: "none", Jobs: true},
	{Name: "user", Jobs: true, Local: true, UserMode: true},
	{Name: bridgeKind, Of: "NAME", valid: validInterface, Limited: true},
	{Name: vlanKind, Of: "ID", most: MaxVLAN, Limited: true},
	{Name: vxlanKind, Of: "VNI", most: MaxVNI, Limited: true},
	{Name: "macvtap", Of: "CARD", valid: validInterface, Local: true, Raw: true},
	{Name: "sriov", Of: "CARD", valid: validInterface, Local: true, Raw: true},
}

// Kind returns the kind of a network; false: there is no such network.
func (n Network) Kind() (NetworkKind, bool) {
	name, of, colon := strings.Cut(string(n), ":")
	i := slices.IndexFunc(NetworkKinds, func(k NetworkKind) bool { return k.Name == name })
	if i < 0 || colon != (NetworkKinds[i].Of != "") || colon && !NetworkKinds[i].takes(of) {
		return NetworkKind{}, false
	}
	return NetworkKinds[i], true
}

// takes reports whether this may stand behind the colon.
func (k NetworkKind) takes(of string) bool {
	if k.most > 0 {
		_, ok := parseID(of, k.most)
		return ok
	}
	return k.valid(of)
}

// Of is what stands behind the colon; "" where nothing does.
func (n Network) Of() string {
	_, of, _ := strings.Cut(string(n), ":")
	return of
}

// ID is the number of a VLAN, or of a VXLAN network; 0 for other networks.
func (n Network) ID() int {
	kind, _ := n.Kind()
	id, _ := parseID(n.Of(), kind.most)
	return id
}

func (n Network) valid() bool {
	_, ok := n.Kind()
	return ok
}

// JobNetworks are the networks that jobs may ask for.
func JobNetworks() []string {
	var names []string
	for _, k := range NetworkKinds {
		if k.Jobs {
			names = append(names, k.Name)
		}
	}
	return names
}

// networkForms are all networks as people write them.
func networkForms() string {
	var workers []string
	for _, k := range NetworkKinds {
		if !k.Jobs {
			workers = append(workers, k.Name+":"+k.Of)
		}
	}
	return strings.Join(JobNetworks(), ", ") + ", and for workers " + strings.Join(workers, ", ")
}

// NetworkBridge is the network of VMs whose card is on a bridge of the host.
func NetworkBridge(name string) Network { return Network(bridgeKind + ":" + name) }

// NetworkVLAN is the network of VMs whose card is in a VLAN.
func NetworkVLAN(id int) Network { return Network(vlanKind + ":" + strconv.Itoa(id)) }

// NetworkVXLAN is the network of VMs whose card is in a network over the hosts' own.
func NetworkVXLAN(vni int) Network { return Network(vxlanKind + ":" + strconv.Itoa(vni)) }

// Bridge is the name of the host's bridge, the administrator's or the one that the agent makes; "" for other networks.
func (n Network) Bridge() string {
	switch kind, _ := n.Kind(); kind.Name {
	case bridgeKind:
		return n.Of()
	case vlanKind, vxlanKind:
		return "g" + kind.Name + n.Of() // 14 characters at most, so that the name of its port fits too
	}
	return ""
}

// validInterface reports whether the kernel takes this name for an interface, which has at most 15 characters (IFNAMSIZ
// of <linux/if.h>), and nothing else reads more into it.
func validInterface(name string) bool {
	return name != "" && len(name) <= 15 && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') &&
				(c < 'a' || c > 'z')
		})
}
