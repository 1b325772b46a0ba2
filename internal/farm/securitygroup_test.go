package farm

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSecurityRule: a rule is read as it is written.
func TestSecurityRule(t *testing.T) {
	for _, text := range []string{"in any", "out any", "in tcp 22 from 192.0.2.0/24", "in tcp 22 from 2001:db8::/32",

		"out udp 53 to 192.0.2.53/32", "in sctp 8000-8080 from group web", "out icmp to group web",
		"in any from ::/0"} {
		r, err := ParseSecurityRule(strings.Fields(text))
		if err != nil || r.String() != text {
			t.Errorf("%q is read as %q: %v", text, r, err)
		}
	}
	for _, text := range []string{"", "in", "through any", "in gre", "in tcp 0", "in tcp 23-22", "in tcp 65536",
		"in icmp 8", "in any 22", "in tcp 22 to 192.0.2.0/24", "out tcp 22 from group web", "in any from group",
		"in any from 192.0.2.1/24", "in any from ::ffff:192.0.2.0/120", "in any from fe80::1%eth0", "in any from",
		"in any from group a b", "in any from group a/b", "in tcp 22 23"} {
		if r, err := ParseSecurityRule(strings.Fields(text)); !IsCode(err, CodeBadRule) && !IsCode(err, CodeBadName) {
			t.Errorf("%q is read as %q: %v", text, r, err)
		}
	}
}

// TestDefaultGroup: nobody comes in but by SSH from where the project says.
func TestDefaultGroup(t *testing.T) {
	p := Project{Name: "p", SSHFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	var got []string
	for _, r := range p.DefaultGroup().Rules {
		got = append(got, r.String())
	}
	if diff := cmp.Diff([]string{"out any", "in tcp 22 from 192.0.2.0/24"}, got); diff != "" {
		t.Error(diff)
	}
	if got := (Project{}).DefaultGroup().Rules; len(got) != 1 || !got[0].Out {
		t.Errorf("without prefixes: %v", got)
	}
}

// TestFirewallOf: a group is the addresses of its VMs, as far as they mean nobody else.
func TestFirewallOf(t *testing.T) {
	lease := func(network, address, mac string) Lease {
		l := Lease{Network: network, MAC: mac}
		if address != "" {
			l.Address = netip.MustParsePrefix(address)
		}
		return l
	}
	own := lease("lan", "10.0.0.20/24", "52:54:00:00:00:01")
	others := []SecurityPeer{
		{[]string{"web"}, own},
		{[]string{"db", "web"}, lease("lan", "10.0.0.21/24", "52:54:00:00:00:02")},
		{[]string{"web"}, lease("far", "10.1.0.5/24", "52:54:00:00:00:03")},
		{[]string{"web"}, lease("double", "10.0.0.30/24", "52:54:00:00:00:04")}, // whose addresses lan has as well
		{[]string{"web"}, lease("lan", "", "52:54:00:00:00:05")},
		{[]string{"db"}, lease("lan", "10.0.0.22/24", "52:54:00:00:00:06")},
	}
	rule := func(text string) SecurityRule {
		r, err := ParseSecurityRule(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	got := FirewallOf(own, []SecurityGroup{
		{Rules: []SecurityRule{rule("in tcp 80 from group web"), rule("in any from group empty"), rule("out any")}},
		{Rules: []SecurityRule{rule("out any"), rule("in udp from 192.0.2.0/24")}}, {}}, others)
	var peers []netip.Prefix
	for _, text := range []string{"10.0.0.20/32", "10.0.0.21/32", "10.1.0.5/32", "fe80::5054:ff:fe00:1/128",
		"fe80::5054:ff:fe00:2/128", "fe80::5054:ff:fe00:5/128"} {
		peers = append(peers, netip.MustParsePrefix(text))
	}
	want := Firewall{Rules: []FirewallRule{{Protocol: TCP, Ports: PortRange{80, 80}, Peers: peers}, {Out: true},
		{Protocol: UDP, Peers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
