package farm

import (
	"slices"
	"strings"
)

// Network is how a VM reaches others: the name of a kind, and for some a colon and what of the host it is.
type Network string

// Networks.
const (
	NetworkNone Network = "none"
	NetworkUser Network = "user" // QEMU's user-mode network: outgoing connections only
)

// bridgePrefix starts the name of a network that is a bridge of the host.
const bridgePrefix = "bridge:"

// NetworkKind is what follows from the name of a network alone, on any host. What a host does for a VM on one is in
// internal/network.
type NetworkKind struct {
	Name     string
	Of       string            // what stands behind the colon, for people: "NAME"; "": nothing does
	valid    func(string) bool // of what stands there; nil where nothing does
	Local    bool              // it is of one host alone: a VM on it cannot move
	Jobs     bool              // jobs may ask for it; others are for VMs that somebody gives an address
	UserMode bool              // a guest on it has the addresses of QEMU's user-mode network
}

// NetworkKinds are all kinds of networks.
var NetworkKinds = []NetworkKind{
	{Name: "none", Jobs: true},
	{Name: "user", Jobs: true, Local: true, UserMode: true},
	{Name: "bridge", Of: "NAME", valid: validInterface},
}

// Kind returns the kind of a network; false: there is no such network.
func (n Network) Kind() (NetworkKind, bool) {
	name, of, colon := strings.Cut(string(n), ":")
	i := slices.IndexFunc(NetworkKinds, func(k NetworkKind) bool { return k.Name == name })
	if i < 0 || colon != (NetworkKinds[i].Of != "") || colon && !NetworkKinds[i].valid(of) {
		return NetworkKind{}, false
	}
	return NetworkKinds[i], true
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
	var forms []string
	for _, k := range NetworkKinds {
		form := k.Name
		if k.Of != "" {
			form += ":" + k.Of
		}
		if !k.Jobs {
			form += " for workers"
		}
		forms = append(forms, form)
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + ", and " + forms[last]
}

// NetworkBridge is the network of VMs whose card is on a bridge of the host.
func NetworkBridge(name string) Network { return Network(bridgePrefix + name) }

// Bridge is the name of the host's bridge; "" for other networks.
func (n Network) Bridge() string {
	name, _ := strings.CutPrefix(string(n), bridgePrefix)
	if name == string(n) {
		return ""
	}
	return name
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
