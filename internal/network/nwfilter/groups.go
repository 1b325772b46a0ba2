package nwfilter

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Security groups are rules for connections: nf_conntrack_bridge of the kernel says of which one a frame is, and who
// began it. Each frame of a connection, not only the first one, is held against the rules for what whoever began it may
// begin: a connection ends with the rule that let it in, and goes on when rules are loaded again.
//
// Two chains of a VM have its rules. Frames reach them by who began their connection, not by where they go.

// Connections from programs of the host to a VM are filtered, too, because the host has other users. Connections of
// root are not filtered, because the agent connects people to their VMs.

// groupsShared are what all VMs with security groups have in common, beside shared. Loading it again changes nothing.
// Without such VMs it is not there, and the kernel follows no connections for us.
const groupsShared = `add counter bridge grange group_in
add counter bridge grange group_out
add counter bridge grange group_invalid
add set bridge grange group_taps { type iface_index; }
add map bridge grange groupin { type iface_index : verdict; }
add map bridge grange groupout { type iface_index : verdict; }
add map bridge grange group_zones { typeof meta ibrname : ct zone; }
add chain bridge grange group_prerouting { type filter hook prerouting priority -310; policy accept; }
add chain bridge grange group_send { type filter hook forward priority -290; policy accept; }
add chain bridge grange group_receive { type filter hook forward priority -280; policy accept; }
add chain bridge grange group_input { type filter hook input priority -290; policy accept; }
add chain bridge grange group_output { type filter hook output priority -290; policy accept; }
add chain bridge grange group_always_out
add chain bridge grange group_always_in
add chain bridge grange group_end_in
add chain bridge grange group_end_out
flush chain bridge grange group_prerouting
flush chain bridge grange group_send
flush chain bridge grange group_receive
flush chain bridge grange group_input
flush chain bridge grange group_output
flush chain bridge grange group_always_out
flush chain bridge grange group_always_in
flush chain bridge grange group_end_in
flush chain bridge grange group_end_out
add rule bridge grange group_prerouting ct zone set meta ibrname map @group_zones
add rule bridge grange group_send iif != @group_taps accept
add rule bridge grange group_send jump group_always_out
add rule bridge grange group_send ct state invalid counter name group_invalid drop
add rule bridge grange group_send ct state related meta l4proto { 1, 58 } accept
add rule bridge grange group_send ct direction reply iif vmap @groupin
add rule bridge grange group_send ct direction original iif vmap @groupout
add rule bridge grange group_send counter name group_out drop
add rule bridge grange group_receive oif != @group_taps accept
add rule bridge grange group_receive jump group_always_in
add rule bridge grange group_receive ct state invalid counter name group_invalid drop
add rule bridge grange group_receive ct state related meta l4proto { 1, 58 } accept
add rule bridge grange group_receive ct direction reply oif vmap @groupout
add rule bridge grange group_receive ct direction original oif vmap @groupin
add rule bridge grange group_receive counter name group_in drop
add rule bridge grange group_input iif != @group_taps accept
add rule bridge grange group_input jump group_always_out
add rule bridge grange group_input ct direction reply accept
add rule bridge grange group_input ct state related meta l4proto { 1, 58 } accept
add rule bridge grange group_input ct direction original iif vmap @groupout
add rule bridge grange group_input counter name group_out drop
add rule bridge grange group_output oif != @group_taps accept
add rule bridge grange group_output meta skuid 0 accept
add rule bridge grange group_output jump group_always_in
add rule bridge grange group_output ct state invalid counter name group_invalid drop
add rule bridge grange group_output ct state related meta l4proto { 1, 58 } accept
add rule bridge grange group_output ct direction reply oif vmap @groupout
add rule bridge grange group_output ct direction original oif vmap @groupin
add rule bridge grange group_output counter name group_in drop
add rule bridge grange group_always_out ether type { arp, 0x8035 } accept
add rule bridge grange group_always_out icmpv6 type { 133, 135, 136, 131, 132, 143 } accept
add rule bridge grange group_always_out ip protocol igmp accept
add rule bridge grange group_always_out ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
add rule bridge grange group_always_out ip6 daddr ff02::1:2 udp sport 546 udp dport 547 accept
add rule bridge grange group_always_out ip daddr 169.254.169.254 tcp dport 80 accept
add rule bridge grange group_always_in ether type { arp, 0x8035 } accept
add rule bridge grange group_always_in icmpv6 type { 130, 134, 135, 136 } accept
add rule bridge grange group_always_in ip protocol igmp accept
add rule bridge grange group_always_in udp sport 67 udp dport 68 accept
add rule bridge grange group_always_in udp sport 547 udp dport 546 accept
add rule bridge grange group_end_in counter name group_in drop
add rule bridge grange group_end_out counter name group_out drop
`

// groupsUnshared removes it, all or nothing, as unshared does.
const groupsUnshared = `flush chain bridge grange group_prerouting
flush chain bridge grange group_send
flush chain bridge grange group_receive
flush chain bridge grange group_input
flush chain bridge grange group_output
delete chain bridge grange group_prerouting
delete chain bridge grange group_send
delete chain bridge grange group_receive
delete chain bridge grange group_input
delete chain bridge grange group_output
delete chain bridge grange group_always_out
delete chain bridge grange group_always_in
delete chain bridge grange group_end_in
delete chain bridge grange group_end_out
delete map bridge grange groupin
delete map bridge grange groupout
delete map bridge grange group_zones
delete set bridge grange group_taps
`

// groupsProbe is what a host must be able to load.
const groupsProbe = `add table bridge grange
add map bridge grange group_probe { typeof meta ibrname : ct zone; }
add chain bridge grange group_probe { type filter hook prerouting priority -310; policy accept; }
add rule bridge grange group_probe ct zone set meta ibrname map @group_probe
add rule bridge grange group_probe ct state invalid drop
add rule bridge grange group_probe ct original ip saddr 192.0.2.1 meta l4proto tcp ct reply proto-src 22 accept
`

// CheckGroups returns why this host cannot hold VMs to security groups; nil: it can. It changes nothing.
func CheckGroups(ctx context.Context) error {
	if _, err := nft(ctx, groupsProbe, "--check", "-f", "-"); err != nil {
		return fmt.Errorf("this host cannot follow connections on bridges, which security groups need: it takes "+
			"Linux 5.3 with nf_conntrack_bridge and nft_meta_bridge, and nftables 1.0: %w", err)
	}
	return nil
}

// groups are the rules of a VM's security groups.
func (r *ruleset) groups(f Filter, index int) {
	for _, out := range []bool{false, true} {
		kind := groupKind(out)
		rule := r.chain(kind, index, f.Machine)
		for _, g := range f.Groups.Rules {
			if g.Out != out {
				continue
			}
			for _, line := range groupRules(g) {
				rule("%s", line)
			}
		}
		rule("goto group_end_%s", strings.TrimPrefix(kind, "group"))
		r.line("add element bridge %s %s { %d : goto %s }", Table, kind, index, chainName(kind, index, f.Machine))
	}
	r.line("add element bridge %s group_taps { %d }", Table, index)
	if f.Bridge != "" {
		r.line("add element bridge %s group_zones { %q : %d }", Table, f.Bridge, zone(f.Bridge))
	}
}

// groupKind is the kind of the chain that has the rules for what a VM, or others with it, begin.
func groupKind(out bool) string {
	if out {
		return groupOutKind
	}
	return groupInKind
}

// groupRules are a rule of security groups as nft has it, one for each family of addresses.
func groupRules(g farm.FirewallRule) (lines []string) {
	match := protocolMatch(g)
	if len(g.Peers) == 0 {
		return []string{match + "accept"}
	}
	side := "saddr" // of the first packet, whichever way this one goes
	if g.Out {
		side = "daddr"
	}
	for _, family := range []string{"ip", "ip6"} {
		peers := smallest(g.Peers, family)
		switch {
		case len(peers) == 0:
		case peers[0].Bits() == 0:
			lines = append(lines, "ether type "+family+" "+match+"accept")
		default:
			lines = append(lines, fmt.Sprintf("ct original %s %s %s %saccept", family, side, prefixSet(peers), match))
		}
	}
	return lines
}

// protocolMatch is what of a rule is about protocol and ports.
func protocolMatch(g farm.FirewallRule) string {
	numbers := map[farm.Protocol]string{farm.TCP: "6", farm.UDP: "17", farm.SCTP: "132", farm.ICMP: "{ 1, 58 }"}
	if g.Protocol == farm.AnyProtocol {
		return ""
	}
	match := "meta l4proto " + numbers[g.Protocol] + " "
	if g.Ports == (farm.PortRange{}) {
		return match
	}
	if g.Out {
		return match + fmt.Sprintf("ct original proto-dst %v ", g.Ports)
	}
	return match + fmt.Sprintf("ct reply proto-src %v ", g.Ports) // behind a translation: the VM's own port
}

// smallest are the prefixes of a family without those that lie in others, in order.
func smallest(all []netip.Prefix, family string) (out []netip.Prefix) {
	sorted := slices.SortedFunc(slices.Values(all), netip.Prefix.Compare) // the larger one first
	for _, p := range sorted {
		if familyOf(p.Addr()) != family {
			continue
		}
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

func prefixSet(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		text := p.String()
		if p.IsSingleIP() {
			text = p.Addr().String()
		}
		texts = append(texts, text)
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// zone is where the kernel keeps the connections of a bridge apart from those of others, which may have the same
// addresses. 0 is that of the host itself.
func zone(bridge string) int {
	h := fnv.New32a()
	h.Write([]byte(bridge))
	return int(h.Sum32()%math.MaxUint16) + 1
}

// checkGroups refuses what cannot be made into rules.
func (f Filter) checkGroups() error {
	if f.Groups == nil {
		return nil
	}
	for _, r := range f.Groups.Rules {
		rule := farm.SecurityRule{Out: r.Out, Protocol: r.Protocol, Ports: r.Ports}
		if err := rule.Validate(); err != nil {
			return err
		}
		if slices.ContainsFunc(r.Peers, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }) {
			return errors.New("a rule with an address that is none")
		}
	}
	return nil
}
