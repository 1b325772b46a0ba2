package config

import (
	"strings"
	"testing"
)

const soundWorker = `
[shapes.node]
cpus = 2
[worker]
controller = "10.102.0.1:6817"
munge_key = "/etc/munge/munge.key"
network = "bridge:br0"
addresses = "10.102.0.20-10.102.0.80/24"
gateway = "10.102.0.1"
dns = ["10.102.0.2"]
users = ["slurm"]
image = "worker"
shape = "node"
files = { "/etc/passwd" = "/etc/grange/passwd" }
`

func TestWorker(t *testing.T) {
	a, err := ParseAgent([]byte(soundWorker), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	if w := a.Worker; w.Network != "bridge:br0" || w.Addresses.First.String() != "10.102.0.20" ||
		w.Addresses.Bits != 24 || w.Files["/etc/passwd"] != "/etc/grange/passwd" {
		t.Errorf("%+v", w)
	}
	if a, err := ParseAgent(nil, "agent.toml"); err != nil || a.Worker.Controller != "" {
		t.Errorf("no workers at all: %+v, %v", a.Worker, err)
	}
	old := strings.Replace(soundWorker, `network = "bridge:br0"`, `bridge = "br0"`, 1)
	if a, err := ParseAgent([]byte(old), "agent.toml"); err != nil || a.Worker.Network != "bridge:br0" ||
		len(a.Renamed) != 1 {
		t.Errorf("as earlier releases have it: %+v, %v", a.Worker, err)
	}
	for _, change := range [][2]string{
		{`controller = "10.102.0.1:6817"`, ``},
		{`10.102.0.1:6817`, `10.102.0.1`},
		{`10.102.0.1:6817`, `10.102.0.1:0`},
		{`"/etc/munge/munge.key"`, `"munge.key"`},
		{`"bridge:br0"`, `""`},
		{`"bridge:br0"`, `"bridge:../br0"`},
		{`"bridge:br0"`, `"user"`},
		{`network = "bridge:br0"`, "network = \"bridge:br0\"\nbridge = \"br0\""},
		{`10.102.0.80/24`, `10.102.1.80/24`},
		{`gateway = "10.102.0.1"`, `gateway = "gw"`},
		{`["10.102.0.2"]`, `["::1"]`},
		{`shape = "node"`, `shape = "none"`},
		{`"/etc/grange/passwd"`, `"passwd"`},
	} {
		if _, err := ParseAgent([]byte(strings.Replace(soundWorker, change[0], change[1], 1)),
			"agent.toml"); err == nil {
			t.Errorf("taken: %s", change[1])
		}
	}
}
