// Package nwfilter keeps VMs whose card is a tap on a bridge from what is not theirs, as libvirt's network filters do:
// a VM sends with its own MAC and addresses only, answers for them only, and plays neither router nor DHCP server.
//
// The filters are nftables rules in a table of our own, of the family bridge, before any other rule of the host. A VM
// has a chain of its own, which frames reach by the index of its tap: the kernel gives an index to no second device,
// while the next VM's tap may have the name of one that has gone. Chain and index go together, so that a filter can be
// removed exactly by whoever finds it, and an agent keeps nothing of it in memory.
//
// A rule lets pass what it recognises, and what no rule lets pass is dropped: a header that is cut off, or that is in
// another fragment, is nothing that could be recognised.
package nwfilter

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Table is the name of our table, of the family bridge.
const Table = "grange"

// metadata is where VMs read what they are: an address of the host's alone.
var metadata = netip.AddrFrom4([4]byte{169, 254, 169, 254})

// Filter is what a VM may be on its network, and whom it may reach.
type Filter struct {
	Machine string // its name: no other machine of this host has it
	MAC     net.HardwareAddr
	// that it was given. Without one of IPv6 it may form its own from its MAC (SLAAC, EUI-64); with none at all DHCP of
	// the network gives it one of IPv4, which nobody here knows
	Addresses []netip.Addr
	Isolated  bool           // it reaches no other isolated VM of this host on the same bridge
	Closed    bool           // it reaches the outside, but nobody of Local beside its gateway and name servers
	Local     []netip.Prefix // of Closed: its network
	Gateway   []netip.Addr   // of its network: without addresses of its own it has none of these, either,
	DNS       []netip.Addr   // nor these
	Server    []netip.Addr   // of DHCP and DNS on this host: no other one's answers reach the VM; none: anybody's do
	Send      farm.Rate      // at most, in the long run; 0: as much as it likes
	Groups    *farm.Firewall // what its security groups come to; nil: it is in none
	// of Groups: it is on this bridge, where the host itself has no connections; "": on one where it may have
	Bridge string
	Shut   bool // it sends nothing
}

// check refuses what cannot be made into rules.
func (f Filter) check() error {
	odd := func(c rune) bool {
		return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}
	switch {
	case f.Machine == "" || len(f.Machine) > 100 || strings.ContainsFunc(f.Machine, odd):
		return fmt.Errorf("invalid name %q of a machine", f.Machine)
	case len(f.MAC) != 6 || f.MAC[0]&1 != 0 || bytes.Equal(f.MAC, make([]byte, 6)):
		return fmt.Errorf("invalid MAC address %q of a VM", f.MAC)
	case slices.ContainsFunc(f.Addresses, func(a netip.Addr) bool { return !a.IsValid() }):
		return fmt.Errorf("invalid address of VM %s", f.Machine)
	case slices.ContainsFunc(f.Addresses, func(a netip.Addr) bool { return a.Unmap() == metadata }):
		return fmt.Errorf("%v is the host's: no VM has it", metadata)
	case f.Closed && len(f.Local) == 0:
		return fmt.Errorf("a network without addresses cannot be closed: what is local is not known")
	}
	return f.checkGroups()
}

// Kinds of chains. A chain's name is its kind, the index of the tap and the machine's name.
const (
	sendKind     = "send"
	closedKind   = "closed"
	groupInKind  = "groupin"
	groupOutKind = "groupout"
)

func chainName(kind string, index int, machine string) string {
	return fmt.Sprintf("%s_%d_%s", kind, index, machine)
}

// Group is that of links (ip-link(8)) which the agent has made, from the moment that they are there: no crash leaves
// one that is not known as ours, and `ip link show group 1735552615` lists all of them. It is "grng" in ASCII.
const Group = 0x67726e67

// pastBridge keeps out what a guest would have its host take without a bridge in between: frames to the addresses that
// bridges keep for themselves, 01:80:c2:00:00:00 to 0f. The kernel gives such a frame to the host as the tap's own, and
// no rule of the family bridge sees some of them. Nothing else comes to the host from a tap that is on a bridge.
//
// On bridges that the agent has made the host has its metadata service, and what addresses its administrator gave it
// there: the kernel would take what is sent there to any of the host's addresses, and route it.
var pastBridge = `add table inet grange_taps
add set inet grange_taps taps { type iface_index; }
add chain inet grange_taps prerouting { type filter hook prerouting priority -300; policy accept; }
flush chain inet grange_taps prerouting
add rule inet grange_taps prerouting iif @taps drop
` + fmt.Sprintf(`add counter inet grange_taps host
add chain inet grange_taps input { type filter hook input priority -300; policy accept; }
flush chain inet grange_taps input
add rule inet grange_taps input iifgroup %[1]d ip daddr %[2]v tcp dport 80 accept
add rule inet grange_taps input iifgroup %[1]d ip daddr %[2]v icmp type destination-unreachable accept
add rule inet grange_taps input iifgroup %[1]d ip daddr %[2]v counter name host drop
add rule inet grange_taps input iifgroup %[1]d meta nfproto ipv4 fib daddr . iif type != local counter name host drop
add rule inet grange_taps input iifgroup %[1]d meta nfproto ipv6 counter name host drop
add chain inet grange_taps forward { type filter hook forward priority -300; policy accept; }
flush chain inet grange_taps forward
add rule inet grange_taps forward iifgroup %[1]d oifgroup != %[1]d counter name host drop
`, Group, metadata)

// shared are what all VMs have in common. Loading it again changes nothing.
var shared = pastBridge + `add table bridge grange
add counter bridge grange tagged
add counter bridge grange ethertype
add counter bridge grange spoofed_mac
add counter bridge grange spoofed_arp
add counter bridge grange spoofed_ip
add counter bridge grange spoofed_ip6
add counter bridge grange spoofed_nd
add counter bridge grange dhcp_server
add counter bridge grange router
add counter bridge grange malformed
add counter bridge grange metadata
add counter bridge grange closed
add counter bridge grange overlay
add counter bridge grange bandwidth
add set bridge grange taps { type iface_index; }
add set bridge grange served { type iface_index; }
add set bridge grange rates { type iface_index; size 65535; flags dynamic, timeout; timeout 1m; }
add map bridge grange senders { type iface_index : verdict; }
add map bridge grange closed_senders { type iface_index : verdict; }
add chain bridge grange prerouting { type filter hook prerouting priority -300; policy accept; }
add chain bridge grange forward { type filter hook forward priority -300; policy accept; }
add chain bridge grange input { type filter hook input priority -300; policy accept; }
add chain bridge grange send_ip
add chain bridge grange send_ip6
add chain bridge grange send_other
add chain bridge grange closed_before
add chain bridge grange closed_after
flush chain bridge grange prerouting
flush chain bridge grange forward
flush chain bridge grange input
flush chain bridge grange send_ip
flush chain bridge grange send_ip6
flush chain bridge grange send_other
flush chain bridge grange closed_before
flush chain bridge grange closed_after
add rule bridge grange prerouting iif vmap @senders
add rule bridge grange forward iif @taps arp daddr ip 169.254.169.254 counter name metadata drop
add rule bridge grange forward iif @taps ip daddr 169.254.169.254 counter name metadata drop
add rule bridge grange forward oif @taps arp saddr ip 169.254.169.254 counter name metadata drop
add rule bridge grange forward oif @taps ip saddr 169.254.169.254 counter name metadata drop
add rule bridge grange forward oif @served iifname != "gdhcp*" udp sport 67 udp dport 68 counter name dhcp_server drop
add rule bridge grange forward oif @served iifname != "gdhcp*" udp sport 547 udp dport 546 counter name dhcp_server drop
add rule bridge grange forward iifname "gdhcp*" oif != @taps udp sport { 67, 547 } counter name dhcp_server drop
add rule bridge grange forward iifname "gdhcp*" oif != @taps icmpv6 type nd-router-advert counter name router drop
add rule bridge grange forward iif vmap @closed_senders
add rule bridge grange input iif @taps udp dport 4789 counter name overlay drop
add rule bridge grange input ip frag-off & 0x1fff != 0 accept
add rule bridge grange input frag frag-off > 0 accept
add rule bridge grange input tcp flags & (fin | syn | rst | ack) != syn accept
add rule bridge grange input icmp type { echo-reply, destination-unreachable, time-exceeded } accept
add rule bridge grange input icmpv6 type { echo-reply, destination-unreachable, packet-too-big, time-exceeded } accept
add rule bridge grange input iif vmap @closed_senders
add rule bridge grange send_ip udp sport 67 counter name dhcp_server drop
add rule bridge grange send_ip udp dport 68 counter name dhcp_server drop
add rule bridge grange send_ip icmp type { redirect, router-advertisement } counter name router drop
add rule bridge grange send_ip meta l4proto 1-255 accept
add rule bridge grange send_ip counter name malformed drop
add rule bridge grange send_ip6 udp sport 547 counter name dhcp_server drop
add rule bridge grange send_ip6 udp dport 546 counter name dhcp_server drop
add rule bridge grange send_ip6 icmpv6 type { nd-router-advert, nd-redirect, 138 } counter name router drop
add rule bridge grange send_ip6 exthdr frag exists icmpv6 type { 133-137 } counter name spoofed_nd drop
add rule bridge grange send_ip6 frag frag-off > 0 meta l4proto { udp, icmpv6 } accept
add rule bridge grange send_ip6 udp sport != 547 accept
add rule bridge grange send_ip6 icmpv6 type != nd-router-advert accept
add rule bridge grange send_ip6 meta l4proto != { 0, 17, 43, 44, 58, 60 } accept
add rule bridge grange send_ip6 counter name malformed drop
add rule bridge grange send_other ether type 0x8035 @nh,0,64 0x0001080006040003 accept
add rule bridge grange send_other ether type arp counter name spoofed_arp drop
add rule bridge grange send_other ether type ip counter name spoofed_ip drop
add rule bridge grange send_other ether type ip6 counter name spoofed_ip6 drop
add rule bridge grange send_other counter name ethertype drop
add rule bridge grange closed_before icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept
add rule bridge grange closed_before icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } accept
add rule bridge grange closed_before ip daddr 255.255.255.255 udp dport 67 accept
add rule bridge grange closed_before ip6 daddr ff02::1:2 udp dport 547 accept
add rule bridge grange closed_before ip daddr 169.254.169.254 tcp dport 80 accept
add rule bridge grange closed_after ip daddr { 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 } counter name closed drop
add rule bridge grange closed_after ip6 daddr { fe80::/10, ff00::/8 } counter name closed drop
`

// unshared removes what is shared, all or nothing: the kernel removes no chain that a VM's chain goes on to.
const unshared = `add table inet grange_taps
delete table inet grange_taps
flush chain bridge grange prerouting
flush chain bridge grange forward
flush chain bridge grange input
delete chain bridge grange prerouting
delete chain bridge grange forward
delete chain bridge grange input
delete chain bridge grange send_ip
delete chain bridge grange send_ip6
delete chain bridge grange send_other
delete chain bridge grange closed_before
delete chain bridge grange closed_after
delete table bridge grange
`

// rules is what nft is to load, after shared, for the VM whose tap has this index. It is pure.
func (f Filter) rules(index int) string {
	r := &ruleset{}
	r.send(f, index)
	if f.Closed {
		r.closed(f, index)
	}
	if f.Groups != nil {
		r.groups(f, index)
	}
	return r.text.String()
}

type ruleset struct{ text strings.Builder }

func (r *ruleset) line(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n", args...) }

// chain makes a chain anew. The function that it returns adds a rule to it.
func (r *ruleset) chain(kind string, index int, machine string) (rule func(format string, args ...any)) {
	name := chainName(kind, index, machine)
	r.line("add chain bridge %s %s", Table, name)
	r.line("flush chain bridge %s %s", Table, name)
	return func(format string, args ...any) {
		r.line("add rule bridge %s %s %s", Table, name, fmt.Sprintf(format, args...))
	}
}

// send are the rules for what a VM sends, to whomever. What it has sent lately is not in its chain, which is made anew
// every few seconds, but in a set, whose elements go a minute after their last frame.
func (r *ruleset) send(f Filter, index int) {
	rule := r.chain(sendKind, index, f.Machine)
	var v6 []netip.Addr
	if f.Shut {
		rule("drop")
	}
	// Before all others: in a frame whose tag the kernel has put aside, it would find what lies behind the tag.
	rule("ether type { 8021q, 8021ad, 0x9100, 0x9200 } counter name tagged drop")
	rule("ether type != { arp, ip, ip6, 0x8035 } counter name ethertype drop")
	rule("ether saddr != %v counter name spoofed_mac drop", f.MAC)
	if f.Send > 0 {
		rule("update @rates { iif limit rate over %d bytes/second burst %d bytes } counter name bandwidth drop",
			f.Send/8, max(f.Send/8/20, 128*1024))
	}
	// A DHCP server goes by the address in the message, which may be a neighbour's, and which a fragment would hide.
	rule("ip frag-off & 0x3fff != 0 udp dport 67 counter name dhcp_server drop")
	rule("udp dport 67 @th,288,48 != 0x%s counter name dhcp_server drop", hex.EncodeToString(f.MAC))
	const arp = "arp htype 1 arp ptype ip arp hlen 6 arp plen 4"
	for _, own := range byFamily(f.Addresses) {
		if own.family == "ip6" {
			v6 = own.all
			continue
		}
		rule("%s arp operation { request, reply } arp saddr ether %v arp saddr ip %s accept", arp, f.MAC, own.set())
		rule("%s arp operation request arp saddr ether %v arp saddr ip 0.0.0.0 arp daddr ip %s accept", arp, f.MAC,
			own.set()) // is the address taken? (RFC 5227)
		rule("ip saddr %s goto send_ip", own.set())
	}
	if len(f.Addresses) == 0 {
		for _, others := range byFamily(slices.Concat(f.Gateway, f.DNS)) {
			if others.family == "ip" { // what it has is not known, but that it is none of these
				rule("arp saddr ip %s counter name spoofed_arp drop", others.set())
				rule("ip saddr %s counter name spoofed_ip drop", others.set())
			}
		}
		rule("%s arp operation { request, reply } arp saddr ether %v arp saddr ip != %v accept", arp, f.MAC, metadata)
		rule("ip saddr != { 0.0.0.0, 127.0.0.0/8, %v, 224.0.0.0/3 } goto send_ip", metadata)
	}
	rule("ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept")
	r.ip6(rule, f.MAC, v6)
	rule("goto send_other")
	r.line("add element inet grange_taps taps { %d }", index)
	r.line("add element bridge %s taps { %d }", Table, index)
	r.line("add element bridge %s served { %d }", Table, index)
	if len(f.Server) == 0 {
		r.line("delete element bridge %s served { %d }", Table, index)
	}
	r.line("add element bridge %s senders { %d : goto %s }", Table, index, chainName(sendKind, index, f.Machine))
}

// ip6 are the rules for IPv6: an address is one that the VM was given, or follows from its MAC.
func (r *ruleset) ip6(rule func(string, ...any), mac net.HardwareAddr, given []netip.Addr) {
	id := interfaceID(mac)
	// in whatever prefix a router announces; nft has no word for the target before 1.0.7
	source := fmt.Sprintf("ip6 saddr & ::ffff:ffff:ffff:ffff == %v", with([8]byte{}, id))
	target := "@th,128,64 0x" + hex.EncodeToString(id)
	if len(given) > 0 {
		own := addresses{"ip6", append(slices.Clone(given), with([8]byte{0xfe, 0x80}, id))}
		source, target = "ip6 saddr "+own.set(), "@th,64,128 "+own.targets()
	}
	rule("ip6 saddr :: icmpv6 type nd-neighbor-solicit exthdr frag missing %s accept", target)
	rule("%s icmpv6 type nd-neighbor-advert exthdr frag missing %s accept", source, target)
	rule("icmpv6 type nd-neighbor-advert counter name spoofed_nd drop")
	rule("%s goto send_ip6", source)
	rule("ip6 saddr :: icmpv6 type nd-neighbor-solicit counter name spoofed_nd drop")
	rule("ip6 saddr :: icmpv6 type { nd-router-solicit, mld-listener-report, mld-listener-reduction, " +
		"mld2-listener-report } accept")
}

// closed are the rules for what a VM may send to others on its bridge, and to the host.
func (r *ruleset) closed(f Filter, index int) {
	rule := r.chain(closedKind, index, f.Machine)
	rule("jump closed_before")
	for _, one := range byFamily(f.Gateway) {
		rule("%s daddr %s accept", one.family, one.set())
	}
	for _, one := range byFamily(f.Server) { // a lease is asked for again at its server
		rule("%s daddr %s udp dport { 67, 547 } accept", one.family, one.set())
	}
	for _, one := range byFamily(slices.Concat(f.DNS, f.Server)) {
		rule("%s daddr %s meta l4proto { tcp, udp } th dport { 53, 853 } accept", one.family, one.set())
	}
	ip6 := false
	for _, p := range f.Local {
		rule("%s daddr %v counter name closed drop", familyOf(p.Addr()), p.Masked())
		ip6 = ip6 || familyOf(p.Addr()) == "ip6"
	}
	if !ip6 { // what a router announces as local is not known
		rule("ether type ip6 counter name closed drop")
	}
	rule("goto closed_after")
	r.line("add element bridge %s closed_senders { %d : goto %s }", Table, index,
		chainName(closedKind, index, f.Machine))
}

// addresses are those of one family.
type addresses struct {
	family string // as nft has it
	all    []netip.Addr
}

// byFamily returns addresses without those that come twice, by family; none of a family: nothing of it.
func byFamily(all []netip.Addr) (families []addresses) {
	for _, family := range []string{"ip", "ip6"} {
		of := addresses{family: family}
		for _, a := range all {
			if a = a.Unmap().WithZone(""); a.IsValid() && familyOf(a) == family && !slices.Contains(of.all, a) {
				of.all = append(of.all, a)
			}
		}
		if len(of.all) > 0 {
			families = append(families, of)
		}
	}
	return families
}

func familyOf(a netip.Addr) string {
	if a.Unmap().Is6() {
		return "ip6"
	}
	return "ip"
}

// set is them as a set of nft.
func (a addresses) set() string { return setOf(a.all, netip.Addr.String) }

// targets are they as nft compares bytes of a header.
func (a addresses) targets() string {
	return setOf(a.all, func(a netip.Addr) string { return "0x" + hex.EncodeToString(a.AsSlice()) })
}

func setOf(all []netip.Addr, text func(netip.Addr) string) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, text(a))
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// interfaceID is the lower half of the addresses that a guest forms from its MAC: modified EUI-64 (RFC 4291,
// appendix A).
func interfaceID(mac net.HardwareAddr) []byte {
	return []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// with returns the address with this interface ID in a prefix of 64 bits.
func with(prefix [8]byte, id []byte) netip.Addr {
	return netip.AddrFrom16([16]byte(slices.Concat(prefix[:], id)))
}
