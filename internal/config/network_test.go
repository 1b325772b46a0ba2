package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

const soundNetwork = `
[network]
macvtap = ["eno4"]
[network.trunks]
eno2 = "100-199,300"
"ovs:br0" = "200-299"
[network.overlay]
local = "2001:db8::5"
peers = ["2001:db8::5", "2001:db8::6"]
vnis = "7000-7999"
[network.dhcp."vlan:120"]
addresses = ["10.120.0.2/24", "2001:db8:120::2/64"]
domain = "vms.example.org"
forward = ["10.0.0.53"]
`

func TestNetwork(t *testing.T) {
	a, err := ParseAgent([]byte(soundNetwork), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"vlan:100-199,300", "vlan:200-299", "vxlan:7000-7999"}
	if got := a.Network.Carried(); !slices.Equal(got, want) {
		t.Errorf("it carries %q, want %q", got, want)
	}
	if o := a.Network.Overlay; o.Local != netip.MustParseAddr("2001:db8::5") || len(o.Peers) != 2 {
		t.Errorf("%+v", o)
	}
	d := a.Network.DHCP["vlan:120"]
	if len(d.Addresses) != 2 || d.Domain != "vms.example.org" || d.Forward[0] != netip.MustParseAddr("10.0.0.53") {
		t.Errorf("%+v", d)
	}
	if a, err := ParseAgent(nil, "agent.toml"); err != nil || len(a.Network.Carried()) > 0 {
		t.Errorf("a host that is told nothing carries %q, %v", a.Network.Carried(), err)
	}
	for _, change := range [][2]string{
		{`"100-199,300"`, `"100-199,4095"`}, {`"100-199,300"`, `""`}, {`"100-199,300"`, `"100-200"`},
		{`eno2 =`, `"eno2/x" =`}, {`ovs:br0`, `ovs:`}, {`ovs:br0`, `ovs:br/0`},
		{`"eno4"`, `"e/4"`}, {`local = "2001:db8::5"`, ``},
		{`local = "2001:db8::5"`, `local = "192.0.2.1"`}, {`"2001:db8::6"]`, `"192.0.2.1"]`},
		{`"2001:db8::6"]`, `"ff02::1"]`}, {`"2001:db8::6"]`, `"fe80::1%eno2"]`}, {`"2001:db8::6"]`, `"host"]`},
		{`"vlan:120"`, `"macvtap:eno4"`}, {`"vlan:120"`, `"user"`}, {`"10.120.0.2/24", `, `"10.120.0.0/24", `},
		{`"10.120.0.2/24", `, `"10.120.0.2", `}, {`"10.120.0.2/24", `, `"2001:db8::2/64", `},
		{`"10.120.0.2/24", `, `"169.254.0.2/31", `}, {`::2/64"]`, `::2/48"]`}, {`::2/64"]`, `::2/64", "10.0.0.1/8"]`},
		{`"vms.example.org"`, `"vms example"`}, {`"10.0.0.53"`, `"10.120.0.2"`}, {`"10.0.0.53"`, `"fe80::1%eno2"`},
		{`vnis = "7000-7999"`, ``}, {`"7000-7999"`, `"7999-7000"`},
	} {
		text := strings.Replace(soundNetwork, change[0], change[1], 1)
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil {
			t.Errorf("taken: %s", change[1])
		}
	}
}
