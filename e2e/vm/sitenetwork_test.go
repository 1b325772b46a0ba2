package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

const siteNetworkConfig = `
[networks.grid]
network = "bridge:br0"
leases = "LIST"
domain = "example.org"
gateways = ["10.77.0.1", "2001:db8::1"]
dns = ["10.77.0.1"]
closed = true
[network]
bandwidth = "200M"
[network.overlay]
local = "192.0.2.1"
vnis = "7001"
[networks.over]
network = "vxlan:7001"
addresses = ["10.78.0.20-10.78.0.29/24", "2001:db8:78::20-2001:db8:78::29/64"]
host_names = "over-*"
[[policy]]
name = "pilots"
networks = ["grid", "over"]
`

const siteLeases = `wn1 52:54:00:77:00:11 10.77.0.11/16 2001:db8::11/64
wn2 52:54:00:77:00:12 2001:db8::12/64
`

// TestSiteNetwork has jobs on a bridge with leases of both families and of IPv6 alone: what guests know and reach, what
// their hosts reach, what stays when the agent is killed, and what is left at the end.
func TestSiteNetwork(t *testing.T) {
	t.Parallel()
	network := newNetwork(t, "site", "link add br0 type bridge mcast_snooping 0", "addr add 10.77.0.1/16 dev br0",
		"addr add 2001:db8::1/64 dev br0 nodad", "link set br0 up", "link add eno2 type veth peer name eno3",
		"addr add 192.0.2.1/24 dev eno2", "link set eno2 up")
	list := filepath.Join(t.TempDir(), "grid.leases")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(siteLeases)
	l := otherHost(t, lab.Options{Network: "/run/netns/" + network, Inside: true, NoImage: true,
		Config: strings.Replace(siteNetworkConfig, "LIST", list, 1)})
	if err := host.Share(ctx(t), "micro", l); err != nil { // its network has no way to Debian
		t.Fatal(err)
	}
	if r := run(t, l.Exec(ctx(t), "--network", "other", "--", "true"), ""); r.code == 0 {
		t.Error("a network that there is not")
	}
	report := func(wants ...string) *job {
		t.Helper()
		j := start(t, l, "--network", "grid", "--bandwidth-in", "100M", "--bandwidth-out", "50M", "--",
			"sh", "-c", guestReport)
		j.expect(t, "reported")
		for _, want := range wants {
			if !strings.Contains(j.out.text(), want) {
				t.Errorf("no %q in %s", want, j.out.text())
			}
		}
		return j
	}
	first := report("wn1.example.org\nnameserver 10.77.0.1", "10.77.0.11 wn1.example.org wn1", "inet 10.77.0.11/16",
		"inet6 2001:db8::11/64", "52:54:00:77:00:11", "v4 reached", "v6 reached")
	second := report("wn2.example.org\nnameserver 10.77.0.1", "inet6 2001:db8::12/64", "v6 reached")
	if strings.Contains(second.out.text(), "v4 reached") {
		t.Error("a VM without an IPv4 address reaches one")
	}
	inside := func(words string) string {
		t.Helper()
		argv := append([]string{"/usr/bin/nsenter", "--net=/run/netns/" + network, "--"}, strings.Fields(words)...)
		return command(t, argv...)
	}
	for _, address := range []string{"10.77.0.11", "2001:db8::12"} { // nobody listens there, which a guest has to say
		r := run(t, exec.CommandContext(ctx(t), "/usr/bin/nsenter", "--net=/run/netns/"+network, "--", "/bin/bash", "-c",
			"exec 3<>/dev/tcp/"+address+"/9"), "")
		if !strings.Contains(r.errors, "Connection refused") {
			t.Errorf("the host does not reach %s: %s", address, r.errors)
		}
	}
	if rules := inside("nft list table bridge grange"); !strings.Contains(rules, "52:54:00:77:00:11") ||
		!strings.Contains(rules, "2001:db8::12") {
		t.Errorf("no filters of both VMs:\n%s", rules)
	}

	if shapers := inside("tc qdisc show"); strings.Count(shapers, "rate 100Mbit") != 2 {
		t.Errorf("two VMs receive 100 Mbit/s:\n%s", shapers)
	}
	booked := run(t, l.Exec(ctx(t), "--network", "grid", "--bandwidth-in", "1M", "--no-wait", "--", "true"), "")
	if !strings.Contains(booked.errors, "200Mbit/s in") && !strings.Contains(booked.errors, "200Mbit/s of this host") {
		t.Errorf("the host's network is booked: status %d, %s", booked.code, booked.errors)
	}

	end := func(j *job) {
		j.Process.Kill()
		<-j.done
	}
	end(second)
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) { // its CPU is the next one's
		vms, err := l.Client.VMs(ctx(t))
		if err == nil && len(vms) == 1 {
			if vms[0].Lease == nil || vms[0].Lease.Name != "wn1.example.org" {
				t.Errorf("the VM that stays has %+v", vms[0].Lease)
			}
			if vms[0].BandwidthIn != 100e6 || vms[0].BandwidthOut != 50e6 {
				t.Errorf("it has %d and %d bit/s", vms[0].BandwidthIn, vms[0].BandwidthOut)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d VMs, %v: the second one does not end", len(vms), err)
		}
	}
	l.KillAgent()
	write("wn3 52:54:00:77:00:13 10.77.0.11/16\n") // the address of a VM that runs
	if err := l.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	r := run(t, l.Exec(ctx(t), "--network", "grid", "--no-wait", "--", "true"), "")
	if r.code == 0 || !strings.Contains(r.errors, "no-address") {
		t.Errorf("its address is given twice: status %d, %s", r.code, r.errors)
	}
	var n api.Network
	show := run(t, l.Grange(ctx(t), "--json", "network", "show", "grid"), "")
	if err := json.Unmarshal([]byte(show.out), &n); err != nil || n.Taken != 1 || len(n.Warnings) != 1 {
		t.Errorf("%v: %s%s", err, show.out, show.errors)
	}
	end(first)
	over := run(t, l.Exec(ctx(t), "--network", "over", "--", "sh", "-c", "hostname; ip address"), "")
	for _, want := range []string{"over-1\n", "inet 10.78.0.20/24", "inet6 2001:db8:78::20/64", "mtu 1450"} {
		if !strings.Contains(over.out, want) {
			t.Errorf("VXLAN: no %q in %s%s", want, over.out, over.errors)
		}
	}
	if left := l.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if rules := inside("nft list ruleset"); strings.Contains(rules, "52:54:00:77") {
		t.Errorf("filters are left:\n%s", rules)
	}
	if links := inside("ip link"); strings.Contains(links, "gvxlan") {
		t.Errorf("links are left:\n%s", links)
	}
	if out := run(t, l.Grange(ctx(t), "network", "export", "grid", "--format", "hosts"), ""); out.out !=
		"10.77.0.11\twn3.example.org wn3\n" {
		t.Errorf("%q%s", out.out, out.errors)
	}
}

const guestReport = `echo up; hostname; cat /etc/resolv.conf /etc/hosts; ip address show; ip link show
ping -c 1 -W 20 10.77.0.1 >/dev/null && echo v4 reached
ping -6 -c 1 -W 20 2001:db8::1 >/dev/null && echo v6 reached
echo reported
exec sleep 600`
