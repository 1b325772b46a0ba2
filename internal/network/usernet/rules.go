// Package usernet keeps VMs with QEMU's user-mode network from the host that they run on. Such a VM's connections are
// made by QEMU itself, and 10.0.2.2 is the host's loopback there: without more, the guest reaches whatever listens on
// 127.0.0.1.
//
// The rules are nftables', in a table of our own, and hold for the users that QEMU runs as: packets of theirs to any
// address of the host, and to networks of the site that it keeps closed, are refused, but for name servers and what the
// site allows. Answers of servers that run as such a user, as of QEMU's own VNC, pass.
//
// VMs share these rules, also those of two agents, and the kernel counts who needs them: it removes no chain that a
// rule jumps to. So each VM has a chain, through which no packet goes, with a jump to a chain that goes with the rules.
package usernet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Table is the name of our table, of the family inet.
const Table = "grange"

// Reach is what of the host and its site VMs reach.
type Reach struct {
	Allow  []netip.AddrPort // services of the host, and in closed networks
	Closed []netip.Prefix   // networks
	Link   bool             // the networks that the host itself is on are closed, too
}

// linkLocal are addresses that mean something on a wire alone: where clouds tell a machine its secrets, for one.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// Rules is what nft is to load for a range of users: all or nothing. Loading it again for another range adds that one.
// Resolvers are name servers of the host: QEMU asks the first of them for its guest. The VMs need the rules until each
// is released. It is pure.
func Rules(users farm.UIDs, resolvers []netip.Addr, reach Reach, vms ...string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("add table inet %s", Table)
	own := chain(users)
	line("add chain inet %s to_host", Table)
	line("add chain inet %s to_site", Table)
	line("add chain inet %s %s { type filter hook output priority filter; policy accept; }", Table, own)
	line("flush chain inet %s to_host", Table)
	line("flush chain inet %s to_site", Table)
	line("flush chain inet %s %s", Table, own)
	rule := func(chain, text string) { line("add rule inet %s %s %s", Table, chain, text) }
	// Overlays of hosts (VXLAN) believe whoever has a host's address, as these VMs do.
	rule(own, fmt.Sprintf("meta skuid %s udp dport 4789 counter drop", match(users)))
	// whatever the host's address: packets to itself go out there
	rule(own, fmt.Sprintf(`oif "lo" meta skuid %s goto to_host`, match(users)))
	rule(own, fmt.Sprintf(`oif != "lo" meta skuid %s goto to_site`, match(users)))
	for _, chain := range []string{"to_host", "to_site"} {
		for _, r := range resolvers {
			rule(chain, fmt.Sprintf("%s daddr %s meta l4proto { tcp, udp } th dport 53 accept", family(r),
				r.WithZone("")))
		}
		for _, a := range reach.Allow {
			rule(chain, fmt.Sprintf("%s daddr %s meta l4proto { tcp, udp } th dport %d accept", family(a.Addr()),
				a.Addr().WithZone(""), a.Port()))
		}
		rule(chain, "tcp flags & (fin | syn | rst | ack) != syn accept") // of a connection that others made
	}
	for _, p := range slices.Concat(linkLocal, reach.Closed) {
		to := fmt.Sprintf("%s daddr %s ", family(p.Addr()), p.Masked())
		rule("to_site", to+"meta l4proto tcp counter reject with tcp reset")
		rule("to_site", to+"counter reject")
	}
	rule("to_host", "meta l4proto tcp counter reject with tcp reset")
	rule("to_host", "counter reject")
	line("add chain inet %s %s", Table, neededPrefix+own)
	for _, vm := range vms {
		line("add chain inet %s %s", Table, vmPrefix+vm)
		line("flush chain inet %s %s", Table, vmPrefix+vm)
		rule(vmPrefix+vm, "jump "+neededPrefix+own)
	}
	return b.String()
}

// Names of chains that count: needed_users_1_9 for users_1_9, and one for each VM.
const (
	neededPrefix = "needed_"
	vmPrefix     = "vm_"
)

// chain is that of a range of users: another range does not flush it.
func chain(users farm.UIDs) string { return fmt.Sprintf("users_%d_%d", users.First, users.Last) }

// chainsOf are the chains of a table as nft lists it.
func chainsOf(listed string) []string {
	var names []string
	for line := range strings.Lines(listed) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "chain" {
			names = append(names, words[1])
		}
	}
	return names
}

// match is how a rule names them: old releases of nft take no range of one.
func match(users farm.UIDs) string {
	if users.First == users.Last {
		return strconv.FormatUint(uint64(users.First), 10)
	}
	return users.String()
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

// Resolvers are the name servers of a resolv.conf.
func Resolvers(text string) (all []netip.Addr) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}
