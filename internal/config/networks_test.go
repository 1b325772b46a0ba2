package config

import (
	"strings"
	"testing"
)

const soundNetworks = `
[networks.grid]
network = "vlan:120"
addresses = ["10.1.0.20-10.1.0.21/24", "2001:db8::20-2001:db8::21/64"]
host_names = "wn-*"
domain = "example.org"
gateways = ["10.1.0.1", "fe80::1"]
dns = ["10.1.0.2"]
closed = true
[networks.listed]
network = "bridge:br0"
leases = "/etc/grange/listed.leases"
[[policy]]
network = "grid"
[worker]
controller = "10.102.0.1:6817"
munge_key = "/etc/munge/munge.key"
network = "listed"
`

// TestApart: workers and leases on one network have no addresses in common.
func TestApart(t *testing.T) {
	of := func(network, addresses string) string {
		text, _, _ := strings.Cut(soundNetworks, "[worker]")
		return text + "[worker]\ncontroller = \"10.102.0.1:6817\"\nmunge_key = \"/etc/munge/munge.key\"\nnetwork = \"" +
			network + "\"\naddresses = \"" + addresses + "\"\n"
	}
	for _, ok := range []string{of("vlan:120", "10.1.0.22-10.1.0.30/24"), of("vlan:121", "10.1.0.20-10.1.0.30/24")} {
		if _, err := ParseAgent([]byte(ok), "agent.toml"); err != nil {
			t.Error(err)
		}
	}
	_, err := ParseAgent([]byte(of("vlan:120", "10.1.0.21-10.1.0.30/24")), "agent.toml")
	if err == nil || !strings.Contains(err.Error(), "worker.addresses") || !strings.Contains(err.Error(), "networks.grid") {
		t.Errorf("leases of workers: %v", err)
	}
	a, err := ParseAgent([]byte(of("bridge:br0", "10.1.0.21-10.1.0.30/24")), "agent.toml")
	if err != nil || a.Networks["listed"].Workers != a.Worker.Addresses || a.Networks["grid"].Workers.First.IsValid() {
		t.Errorf("beside a list: %+v, %v", a.Networks["listed"], err)
	}
}

func TestNetworks(t *testing.T) {
	a, err := ParseAgent([]byte(soundNetworks), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	n := a.Networks["grid"]
	if n.On != "vlan:120" || len(n.Pools) != 2 || !n.Closed || len(n.Gateways) != 2 || n.Name != "grid" ||
		a.Policy[0].Network != "grid" || a.Worker.Network != "bridge:br0" || a.Worker.Site != "listed" {
		t.Errorf("%+v, %+v", n, a.Worker)
	}
	for _, change := range [][2]string{
		{`[networks.grid]`, `[networks.user]`},
		{`[networks.grid]`, `[networks."a/b"]`},
		{`"vlan:120"`, `"user"`},
		{`"vlan:120"`, `"vlan"`},
		{`"vlan:120"`, `"macvtap:eno2"`},
		{`10.1.0.21/24`, `10.1.0.22/24`},
		{`10.1.0.20-10.1.0.21/24`, `10.1.0.20`},
		{`"wn-*"`, `"wn"`},
		{`"wn-*"`, `"w_n-*"`},
		{`"10.1.0.1"`, `"10.1.0.20"`},
		{`"10.1.0.1"`, `"10.2.0.1"`},
		{`"fe80::1"`, `"10.1.0.3"`},
		{`"10.1.0.2"`, `"ns"`},
		{`"/etc/grange/listed.leases"`, `"listed.leases"`},
		{`leases = "/etc/grange/listed.leases"`, ``},
		{`closed = true`, "closed = true\nunfiltered = true"},
		{`closed = true`, "leases = \"/x\""},
		{`network = "listed"`, `network = "other"`},
		{`network = "listed"`, "network = \"listed\"\ngateway = \"10.1.0.1\""},
		{"network = \"grid\"", "network = \"grit\""},
	} {
		if _, err := ParseAgent([]byte(strings.Replace(soundNetworks, change[0], change[1], 1)),
			"agent.toml"); err == nil {
			t.Errorf("taken: %s", change[1])
		}
	}
}
