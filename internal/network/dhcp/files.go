package dhcp

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// VM is a machine that the server knows.
type VM struct {
	Machine   string // its name: no other one on this host has it
	PID       int    // of its process
	Started   uint64 // when, in the kernel's ticks: no later process of the number is taken for it
	Host      string // what it is called; of that, DNS has what stands before the first dot
	MAC       string
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	DNS       []netip.Addr // beside the server
}

func (v VM) equal(o VM) bool {
	return v.Machine == o.Machine && v.PID == o.PID && v.Started == o.Started && v.Host == o.Host && v.MAC == o.MAC &&
		slices.Equal(v.Addresses, o.Addresses) && slices.Equal(v.Gateways, o.Gateways) && slices.Equal(v.DNS, o.DNS)
}

// of is the VM's address of the family in the server's prefix; others it does not get by DHCP.
func (v VM) of(server netip.Prefix) (a netip.Addr, ok bool) {
	for _, p := range v.Addresses {
		if server.Masked().Contains(p.Addr()) && p.Addr() != server.Addr() {
			return p.Addr(), true
		}
	}
	return a, false
}

// leaseTime is how long a VM may go on with what it was told. One that has moved learns then which server it has.
const leaseTime = "1h"

// Names of files in the directory of a server.
const (
	confFile    = "dnsmasq.conf"
	hostsFile   = "hosts"   // which MAC has what
	optionsFile = "options" // what else it is told
	namesFile   = "names"   // as /etc/hosts
)

// card is the server's interface, in its network namespace.
const card = "eth0"

// conf is dnsmasq's configuration: what is the same as long as the server runs.
func conf(dir string, d farm.DHCPServer, mtu int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("interface=%s\nexcept-interface=lo\nbind-interfaces\npid-file=\nleasefile-ro", card)
	line("no-resolv\nno-hosts\nno-poll\nbogus-priv\ndomain-needed\ncache-size=1000")
	for _, server := range d.Forward {
		line("server=%v", server)
	}
	if d.Domain != "" {
		line("local=/%[1]s/\ndhcp-option=option:domain-name,%[1]s\ndhcp-option=option6:domain-search,%[1]s", d.Domain)
	}
	line("addn-hosts=%[1]s/%[2]s\ndhcp-hostsfile=%[1]s/%[3]s\ndhcp-optsfile=%[1]s/%[4]s", dir, namesFile, hostsFile,
		optionsFile)
	// It knows all of its VMs, and is the only server that they hear; for all others there is another one, or none.
	line("dhcp-ignore=tag:!known\ndhcp-authoritative\ndhcp-ignore-names\nno-ping\nquiet-dhcp\nquiet-dhcp6\nquiet-ra")
	if mtu != usualMTU {
		line("dhcp-option-force=option:mtu,%d", mtu)
	}
	for _, p := range d.Addresses {
		network := p.Masked()
		if p.Addr().Is4() {
			line("dhcp-range=%v,static,%v,%s", network.Addr(), net.IP(net.CIDRMask(p.Bits(), 32)), leaseTime)
			continue
		}
		// It announces the prefix, and that addresses come by DHCP. It is nobody's router: its lifetime as one is 0.
		line("dhcp-range=%v,static,%d,%s", network.Addr(), p.Bits(), leaseTime)
		line("enable-ra\nra-param=%s,mtu:%d,60,0", card, mtu)
	}
	return b.String()
}

// reserved are names that programs look for in a network by themselves, and take the answer for the site's, and words
// that dnsmasq has a meaning for where a name stands.
var reserved = []string{"localhost", "wpad", "isatap", "gateway", "ignore", "infinite"}

// labels are the names of VMs in DNS, by machine. Users choose what their VMs are called: a name is the first one's
// who has it, and has no domain but the server's.
func labels(vms []VM) map[string]string {
	vms = slices.Clone(vms)
	slices.SortFunc(vms, func(a, b VM) int {
		return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.PID, b.PID))
	})
	names, taken := map[string]string{}, slices.Clone(reserved)
	for _, vm := range vms {
		label, _, _ := strings.Cut(strings.ToLower(vm.Host), ".")
		if farm.IsHostname(label) && !slices.Contains(taken, label) {
			names[vm.Machine] = label
			taken = append(taken, label)
		}
	}
	return names
}

// files are those that change with the VMs, by name.
func files(d farm.DHCPServer, vms []VM) map[string]string {
	var hosts, options, names strings.Builder
	called := labels(vms)
	for _, vm := range vms {
		tag := "vm" + strings.ReplaceAll(vm.MAC, ":", "")
		words := []string{vm.MAC, "set:" + tag}
		option := func(name string, values ...string) {
			fmt.Fprintf(&options, "%s\n", strings.Join(append([]string{"tag:" + tag, name}, values...), ","))
		}
		label := called[vm.Machine]
		for _, p := range d.Addresses {
			a, ok := vm.of(p)
			if !ok {
				continue
			}
			if label != "" && d.Domain != "" {
				fmt.Fprintf(&names, "%v %s.%s %s\n", a, label, d.Domain, label)
			} else if label != "" {
				fmt.Fprintf(&names, "%v %s\n", a, label)
			}
			if a.Is4() {
				words = append(words, a.String())
				option("option:router", within(vm.Gateways, p)...) // without a value it is not told of one
				option("option:dns-server", servers(p.Addr(), vm.DNS)...)
			} else {
				words = append(words, "["+a.String()+"]")
				option("option6:dns-server", servers(p.Addr(), vm.DNS)...)
			}
		}
		if len(words) == 2 { // it has nothing in the server's prefixes
			continue
		}
		if label != "" {
			words = append(words, label)
		}
		fmt.Fprintf(&hosts, "%s\n", strings.Join(append(words, leaseTime), ","))
	}
	return map[string]string{hostsFile: hosts.String(), optionsFile: options.String(), namesFile: names.String()}
}

// within are the addresses in a prefix.
func within(all []netip.Addr, p netip.Prefix) (texts []string) {
	for _, a := range all {
		if p.Masked().Contains(a) {
			texts = append(texts, a.String())
		}
	}
	return texts
}

// servers are this server and others of its family, as options have them.
func servers(own netip.Addr, others []netip.Addr) (texts []string) {
	for _, a := range append([]netip.Addr{own}, others...) {
		switch {
		case a.Is4() != own.Is4() || a == own && len(texts) > 0:
		case a.Is6():
			texts = append(texts, "["+a.String()+"]")
		default:
			texts = append(texts, a.String())
		}
	}
	return texts
}

// usualMTU is what guests take an Ethernet to have until they are told otherwise.
const usualMTU = 1500
