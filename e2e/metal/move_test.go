package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// serviceFarm is two hosts that are one service cell, on a network that both have a bridge to.
const serviceFarm = `
[cells.services]
broker = "grange"
default = true
services = true
projects = ["web"]

[projects.web]
quota = { vms = 4 }

[shapes.tiny]
cpus = 2
memory = "192M"
scratch = "64M"

[shapes.cached]
cpus = 1
memory = "192M"
scratch = "64M"
cache = "writeback"

[shapes.whole]
cpus = 1
memory = "192M"
cpu_model = "host-passthrough"

[networks.lan]
bridge = "br0"
addresses = ["10.77.0.100-10.77.0.120/24"]
`

// toBridge puts the card of the hosts' own network into a bridge, as an administrator does for VMs.
const toBridge = `ip link add br0 type bridge
ip address flush dev enp0s3
ip link set enp0s3 master br0
ip address add 10.77.0.%d/24 dev br0
ip link set br0 up`

// pair is a fleet of two hosts, the first of which has its server.
type pair struct {
	t     *testing.T
	hosts map[string]*metallab.Host
}

// startPair brings both up, with the packages of agent and server.
func startPair(t *testing.T) *pair {
	p := &pair{t: t, hosts: map[string]*metallab.Host{}}
	room(t, 2)
	debs, lan := agentDebs(t), newLAN(t)
	for i := 1; i <= 2; i++ {
		name := fmt.Sprintf("node-%d", i)
		p.hosts[name] = begin(t, metallab.Options{Name: name, Debs: debs, LAN: lan, Peer: i})
		run(t, p.hosts[name], fmt.Sprintf(toBridge, i))
	}
	first, second := p.hosts["node-1"], p.hosts["node-2"]
	server, err := filepath.Glob(filepath.Join(dist, "grange-server_*.deb"))
	if err != nil || len(server) != 1 {
		t.Fatalf("packages of the server: %v, %v", server, err)
	}
	if err := first.Copy(t.Context(), "/root", server...); err != nil {
		t.Fatal(err)
	}
	run(t, first, `set -e
DEBIAN_FRONTEND=noninteractive apt-get -q -y install /root/grange-server_*.deb
echo 'url = "https://10.77.0.1:7480"' >>/etc/grange/server.toml
systemctl enable --now grange-server
cat >/root/farm.toml <<'END'
`+serviceFarm+`END
grange apply -f /root/farm.toml`)
	p.image(first, second)
	for name, h := range p.hosts {
		token := run(t, first, "grange host token create --cell services --name "+name)
		if err := h.Put(t.Context(), "/root/join", strings.NewReader(token)); err != nil {
			t.Fatal(err)
		}
		run(t, h,
			"grange host join --server https://10.77.0.1:7480 --token-file /root/join --name "+name+" && systemctl "+
				"reload-or-restart grange-agent")
	}
	await(t, first, "both hosts are open", `test $(grange host list | grep -c ' open') = 2`)
	return p
}

// image builds an image with an SSH server on one host, and brings it to the other.
func (p *pair) image(from, to *metallab.Host) {
	var files bytes.Buffer
	run(p.t, from, "grange image build cloud")
	if err := from.Command(p.t.Context(), "tar -C /var/lib/grange -cf - images", nil, &files); err != nil {
		p.t.Fatal(err)
	}
	if err := to.Command(p.t.Context(), "tar -C /var/lib/grange -xf - && systemctl restart grange-agent", &files,
		nil); err != nil {
		p.t.Fatal(err)
	}
}

func newLAN(t *testing.T) metallab.LAN {
	lan, err := metallab.NewLAN()
	if err != nil {
		t.Fatal(err)
	}
	return lan
}

// server runs a command of an administrator of the fleet.
func (p *pair) server(script string) string { p.t.Helper(); return run(p.t, p.hosts["node-1"], script) }

func (p *pair) host(vm string) string {
	return query[struct{ Host string }](p.t, p.hosts["node-1"], "grange vm show "+vm+" --json").Host
}

func other(host string) string {
	return map[string]string{"node-1": "node-2", "node-2": "node-1"}[host]
}

// inGuest runs a script in the VM.
const inGuest = "grange ssh web/db -- "

// at checks that the VM of before runs on a host, where its own plan there has it, and nowhere else.
func (p *pair) at(host, boot string) {
	p.t.Helper()
	if got := p.host("web/db"); got != host {
		p.t.Fatalf("the VM is on %s, not on %s", got, host)
	}
	if got := p.server(inGuest +
		`'sha256sum -c /tmp/sum >/dev/null && cat /proc/sys/kernel/random/boot_id'`); got != boot {
		p.t.Errorf("another boot of the guest: %q, was %q", got, boot)
	}
	proven(p.t, p.hosts[host], 1)
	if got := run(p.t, p.hosts[host], "grep -c display/vnc /proc/net/unix || true"); got != "1" {
		p.t.Errorf("%s sockets of displays on %s", got, host)
	}
	left := p.hosts[other(host)]
	await(p.t, left, "nothing of it is left where it was",
		`test -z "$(`+qemus+`)" && ! grep -q libvirt- /sys/kernel/security/apparmor/profiles`)
}

// TestMove moves a cloud VM between two hosts while it runs: by order, by a drain; not where it may not go; and back to
// where it was when the target fails.
func TestMove(t *testing.T) {
	long(t)
	t.Parallel()
	p := startPair(t)
	p.compare()
	p.server("grange vm create --project web --name db --image cloud --shape tiny --network lan --display --new-key " +
		"--wait")
	boot := p.server(inGuest +
		`'head -c 8000000 /dev/urandom >/tmp/data; sha256sum /tmp/data >/tmp/sum; cat /proc/sys/kernel/random/boot_id'`)
	from := p.host("web/db")
	p.at(from, boot)
	t.Log(p.server("grange vm move web/db --wait --to " + other(from)))
	p.at(other(from), boot)
	p.refused()
	p.targetFails(other(from), boot)
	p.server("grange host drain " + other(from) + " --reason 'new memory'")
	await(t, p.hosts["node-1"], "the drain has moved it",
		"grange vm show web/db --json | grep -q '\"host\": *\""+from+"\"'")
	p.at(from, boot)
	for _, h := range p.hosts {
		if got := run(t, h, `journalctl -q --no-pager -b -k --grep 'apparmor="DENIED"' || true`); got != "" {
			t.Errorf("AppArmor denied on %s:\n%s", h.Name, got)
		}
	}
	p.server("grange host open " + other(from) + "; grange vm delete web/db --wait")
}

// compare has two recordings compared: hosts of one kind keep no VM from moving.
func (p *pair) compare() {
	var text bytes.Buffer
	if err := p.hosts["node-2"].Command(p.t.Context(), "grange host record -o - 2>/dev/null", nil, &text); err != nil {
		p.t.Fatal(err)
	}
	if err := p.hosts["node-1"].Put(p.t.Context(), "/root/node-2.tar", &text); err != nil {
		p.t.Fatal(err)
	}
	p.server("grange host record -o /root/node-1.tar && grange host compare /root/node-1.tar /root/node-2.tar")
}

// refused are VMs that stay where they are, each with its reason.
func (p *pair) refused() {
	for shape, why := range map[string]string{"cached": "precludes migration", "whole": "the whole processor"} {
		p.server("grange vm create --project web --name " + shape + " --image micro --shape " + shape + " --wait")
		out := p.server("grange vm move web/" + shape + " 2>&1; echo status $?")
		if !strings.Contains(out, why) || !strings.Contains(out, "move-refused") || strings.Contains(out, "status 0") {
			p.t.Errorf("a move of a VM of shape %s: %s", shape, out)
		}
		p.server("grange vm delete --wait web/" + shape)
	}
}

// targetFails kills the target's agent and libvirtd under a move: the VM runs on where it was.
func (p *pair) targetFails(host, boot string) {
	p.server("grange vm move web/db")
	target := p.hosts[other(host)]
	await(p.t, target, "the target has a QEMU", `test -n "$(`+qemus+`)"`)
	run(p.t, target, "systemctl kill -s KILL grange-agent; pkill -KILL -f '^/usr/bin/qemu-system'; systemctl kill -s "+
		"KILL libvirtd; systemctl start libvirtd grange-agent")
	await(p.t, p.hosts["node-1"], "the move has ended", "! grange vm move web/db --cancel 2>/dev/null")
	p.at(host, boot)
}
