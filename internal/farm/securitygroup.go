package farm

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// SecurityGroup is what the VMs of a project that name it may send and receive. Of several groups of a VM, each rule
// counts.
type SecurityGroup struct {
	Project, Name string
	Rules         []SecurityRule
	Revision      int64
}

// DefaultSecurityGroup is the name of the group that each project has, with rules that follow from the project.
const DefaultSecurityGroup = "default"

// What people may have of security groups. Hosts hold all rules of a VM in their kernels.
const (
	MaxServerGroups   = 100   // of a project
	MaxSecurityGroups = 100   // of a project
	MaxSecurityRules  = 100   // of a group
	MaxGroupsOfVM     = 10    // that a VM is in
	MaxFirewallPeers  = 10000 // addresses in all rules of a VM
	MaxVMsOfGroup     = 1000  // whose addresses take the place of the group in a rule
)

// FollowsFlows is what a host says beside its networks where its kernel follows connections on bridges, so that VMs can
// be held to security groups. No bridge has such a name.
const FollowsFlows = "flows:bridge"

// FollowsFlows reports whether the host says so.
func (f Facts) FollowsFlows() bool { return slices.Contains(f.Networks, FollowsFlows) }

// SecurityRule lets pass what others begin with a VM, or what a VM begins with others, and the answers.
type SecurityRule struct {
	Out      bool // what the VM begins
	Protocol Protocol
	Ports    PortRange    // of whom it is begun with
	CIDR     netip.Prefix // the others; zero: whoever, where no Group is there
	Group    string       // the others are its VMs, of the same project
}

// Protocol is what a rule is about, in the words of people.
type Protocol string

// The protocols; ICMP is that of both families.
const (
	AnyProtocol Protocol = ""
	TCP         Protocol = "tcp"
	UDP         Protocol = "udp"
	SCTP        Protocol = "sctp"
	ICMP        Protocol = "icmp"
)

// Protocols are all, by their words.
var Protocols = map[string]Protocol{"any": AnyProtocol, "tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP}

// HasPorts reports whether the protocol has ports.
func (p Protocol) HasPorts() bool { return p == TCP || p == UDP || p == SCTP }

func (p Protocol) String() string {
	if p == AnyProtocol {
		return "any"
	}
	return string(p)
}

// PortRange is ports; the zero value is all.
type PortRange struct{ First, Last uint16 }

func (r PortRange) String() string {
	switch {
	case r == PortRange{}:
		return ""
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePortRange reads "22" or "8000-8080"; "": all. The error is a *Error of kind Invalid.
func ParsePortRange(text string) (r PortRange, err error) {
	if text == "" {
		return r, nil
	}
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return r, badRule("%q are not ports; write 22 or 8000-8080", text)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// String is the rule as ParseSecurityRule reads it: "in tcp 22 from 192.0.2.0/24", "out any to group db".
func (r SecurityRule) String() string {
	way, preposition := "in", "from"
	if r.Out {
		way, preposition = "out", "to"
	}
	words := []string{way, r.Protocol.String()}
	if r.Ports != (PortRange{}) {
		words = append(words, r.Ports.String())
	}
	switch {
	case r.Group != "":
		words = append(words, preposition, "group", r.Group)
	case r.CIDR.IsValid():
		words = append(words, preposition, r.CIDR.String())
	}
	return strings.Join(words, " ")
}

// ParseSecurityRule reads the words of a rule. The error is a *Error of kind Invalid.
func ParseSecurityRule(words []string) (r SecurityRule, err error) {
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	switch way := next(); way {
	case "in":
	case "out":
		r.Out = true
	default:
		return r, badRule("%q is not a direction: in or out", way)
	}
	word, known := next(), false
	if r.Protocol, known = Protocols[word]; !known {
		return r, badRule("%q is not a protocol: any, tcp, udp, sctp or icmp", word)
	}
	word = next()
	if word != "" && word[0] >= '0' && word[0] <= '9' {
		if r.Ports, err = ParsePortRange(word); err != nil {
			return r, err
		}
		word = next()
	}
	if preposition := map[bool]string{false: "from", true: "to"}[r.Out]; word != "" {
		if word != preposition {
			return r, badRule("%q is where ports, or %q, may be", word, preposition)
		}
		if word = next(); word == "group" {
			r.Group = next()
		} else if r.CIDR, err = ParseCIDR(word); err != nil {
			return r, err
		}
		if word == "group" && r.Group == "" {
			return r, badRule("no group is named")
		}
	}
	if len(words) > 0 {
		return r, badRule("%q is too much", strings.Join(words, " "))
	}
	return r, r.Validate()
}

// ParseCIDR reads a prefix, or an address, which is a prefix of its own. The error is a *Error of kind Invalid.
func ParseCIDR(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, badRule("%q is not a prefix; write 192.0.2.0/24 or 2001:db8::/32", text)
	}
	if p != p.Masked() {
		return p, badRule("%s has bits behind its prefix: write %v", text, p.Masked())
	}
	return p, nil
}

// Validate refuses a rule that cannot be.
func (r SecurityRule) Validate() error {
	known := false
	for _, p := range Protocols {
		known = known || p == r.Protocol
	}
	switch {
	case !known:
		return badRule("%q is not a protocol: any, tcp, udp, sctp or icmp", string(r.Protocol))
	case r.Ports != PortRange{} && !r.Protocol.HasPorts():
		return badRule("protocol %v has no ports", r.Protocol)
	case r.Ports != PortRange{} && (r.Ports.First == 0 || r.Ports.Last < r.Ports.First):
		return badRule("ports %v are none", r.Ports)
	case r.CIDR.IsValid() && r.Group != "":
		return badRule("a rule is about a prefix or a group, not both")
	case r.CIDR.IsValid() && (r.CIDR != r.CIDR.Masked() || r.CIDR.Addr().Is4In6()):
		return badRule("%v is not a prefix", r.CIDR)
	case r.Group != "":
		return CheckName("security group", r.Group)
	}
	return nil
}

// Validate refuses a group that cannot be.
func (g SecurityGroup) Validate() error {
	if err := CheckName("security group", g.Name); err != nil {
		return err
	}
	if len(g.Rules) > MaxSecurityRules {
		return badRule("%d rules; a security group has at most %d", len(g.Rules), MaxSecurityRules)
	}
	for i, r := range g.Rules {
		if err := r.Validate(); err != nil {
			return err
		}
		if slices.Contains(g.Rules[:i], r) {
			return badRule("rule %q is there twice", r)
		}
	}
	return nil
}

// Names reports whether a rule of the group names another group.
func (g SecurityGroup) Names(group string) bool {
	return slices.ContainsFunc(g.Rules, func(r SecurityRule) bool { return r.Group == group })
}

func badRule(format string, args ...any) error {
	return &Error{Kind: Invalid, Code: CodeBadRule, Message: fmt.Sprintf("security group: "+format, args...),
		Hint: "for example: in tcp 22 from 192.0.2.0/24; out udp 53; in any from group web"}
}

// DefaultGroup is the project's group of that name: SSH from where the project says, and all that a VM begins.
func (p Project) DefaultGroup() SecurityGroup {
	g := SecurityGroup{Project: p.Name, Name: DefaultSecurityGroup, Rules: []SecurityRule{{Out: true}},
		Revision: p.Revision}
	for _, from := range p.SSHFrom {
		g.Rules = append(g.Rules, SecurityRule{Protocol: TCP, Ports: PortRange{22, 22}, CIDR: from})
	}
	return g
}

// Firewall is what security groups come to for one VM: addresses are in the place of groups. What no rule lets pass is
// dropped; answers pass.
type Firewall struct{ Rules []FirewallRule }

// FirewallRule is a SecurityRule with the addresses of the others.
type FirewallRule struct {
	Out      bool
	Protocol Protocol
	Ports    PortRange
	Peers    []netip.Prefix // none: whoever
}

// SecurityPeer is a VM that a rule may mean: by its lease, and the address that it forms from its MAC.
type SecurityPeer struct {
	Groups []string
	Lease  Lease
}

// FirewallOf is what groups come to for a VM on a network; others are the VMs of its project. An address of another
// network counts where it cannot be meant for a neighbour: two networks may have the same addresses.
func FirewallOf(own Lease, groups []SecurityGroup, others []SecurityPeer) Firewall {
	var f Firewall
	left := MaxFirewallPeers
	for _, g := range groups {
		for _, r := range g.Rules {
			rule := FirewallRule{Out: r.Out, Protocol: r.Protocol, Ports: r.Ports}
			switch {
			case r.CIDR.IsValid():
				rule.Peers = []netip.Prefix{r.CIDR}
			case r.Group != "":
				rule.Peers = peersOf(own, r.Group, others)
				if rule.Peers == nil || len(rule.Peers) > left {
					continue // nobody is in it, or more are than a host takes: it lets nobody in
				}
				left -= len(rule.Peers)
			}
			if !slices.ContainsFunc(f.Rules, rule.equal) {
				f.Rules = append(f.Rules, rule)
			}
		}
	}
	return f
}

func (r FirewallRule) equal(o FirewallRule) bool {
	return r.Out == o.Out && r.Protocol == o.Protocol && r.Ports == o.Ports && slices.Equal(r.Peers, o.Peers)
}

// peersOf are the addresses of a group's VMs, in order.
func peersOf(own Lease, group string, others []SecurityPeer) (peers []netip.Prefix) {
	add := func(a netip.Addr) { peers = append(peers, netip.PrefixFrom(a, a.BitLen())) }
	for _, o := range others {
		if !slices.Contains(o.Groups, group) {
			continue
		}
		near := o.Lease.Network == own.Network
		if a := o.Lease.Address; a.IsValid() && (near || !own.Address.Masked().Contains(a.Addr())) {
			add(a.Addr())
		}
		if a, ok := LinkLocal(o.Lease.MAC); ok && near {
			add(a)
		}
	}
	slices.SortFunc(peers, netip.Prefix.Compare)
	return slices.Compact(peers)
}

// LinkLocal is the address that a guest forms from its MAC on each link: modified EUI-64 (RFC 4291, appendix A).
func LinkLocal(mac string) (netip.Addr, bool) {
	var m [6]byte
	parts := strings.Split(mac, ":")
	if len(parts) != len(m) {
		return netip.Addr{}, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 16, 8)
		if err != nil {
			return netip.Addr{}, false
		}
		m[i] = byte(n)
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3],
		14: m[4], 15: m[5]}), true
}
