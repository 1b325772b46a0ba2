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
eno3 = "200-299"
[network.overlay]
local = "2001:db8::5"
peers = ["2001:db8::5", "2001:db8::6"]
vnis = "7000-7999"
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
	if a, err := ParseAgent(nil, "agent.toml"); err != nil || len(a.Network.Carried()) > 0 {
		t.Errorf("a host that is told nothing carries %q, %v", a.Network.Carried(), err)
	}
	for _, change := range [][2]string{
		{`"100-199,300"`, `"100-199,4095"`}, {`"100-199,300"`, `""`}, {`"100-199,300"`, `"100-200"`},
		{`eno2 =`, `"eno2/x" =`}, {`"eno4"`, `"e/4"`}, {`local = "2001:db8::5"`, ``},
		{`local = "2001:db8::5"`, `local = "192.0.2.1"`}, {`"2001:db8::6"]`, `"192.0.2.1"]`},
		{`"2001:db8::6"]`, `"ff02::1"]`}, {`"2001:db8::6"]`, `"fe80::1%eno2"]`}, {`"2001:db8::6"]`, `"host"]`},
		{`vnis = "7000-7999"`, ``}, {`"7000-7999"`, `"7999-7000"`},
	} {
		text := strings.Replace(soundNetwork, change[0], change[1], 1)
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil {
			t.Errorf("taken: %s", change[1])
		}
	}
}
