package dhcp

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestConf(t *testing.T) {
	got := conf("/run/d", farm.DHCPServer{Addresses: prefixes("10.1.2.2/23", "2001:db8::2/64"),
		Domain: "vms.example.org", Forward: addresses("10.0.0.53")}, 1450)
	const want = `interface=eth0
except-interface=lo
bind-interfaces
pid-file=
leasefile-ro
no-resolv
no-hosts
no-poll
bogus-priv
domain-needed
cache-size=1000
server=10.0.0.53
local=/vms.example.org/
dhcp-option=option:domain-name,vms.example.org
dhcp-option=option6:domain-search,vms.example.org
addn-hosts=/run/d/names
dhcp-hostsfile=/run/d/hosts
dhcp-optsfile=/run/d/options
dhcp-ignore=tag:!known
dhcp-authoritative
dhcp-ignore-names
no-ping
quiet-dhcp
quiet-dhcp6
quiet-ra
dhcp-option-force=option:mtu,1450
dhcp-range=10.1.2.0,static,255.255.254.0,1h
dhcp-range=2001:db8::,static,64,1h
enable-ra
ra-param=eth0,mtu:1450,60,0
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFiles(t *testing.T) {
	d := farm.DHCPServer{Addresses: prefixes("10.1.0.2/24", "2001:db8::2/64"), Domain: "vms.example.org"}
	vms := []VM{
		{Machine: "a", Started: 9, Host: "WN-1.example.org", MAC: "52:54:0a:01:00:0b",
			Addresses: prefixes("10.1.0.11/24", "2001:db8::11/64"), Gateways: addresses("10.1.0.1", "2001:db8::1"),
			DNS: addresses("10.0.0.53", "10.1.0.2", "2001:db8:5::53")},
		{Machine: "b", Started: 10, Host: "wn-1", MAC: "52:54:0a:01:00:0c", Addresses: prefixes("10.1.0.12/24")},
		{Machine: "c", Started: 8, Host: "wpad", MAC: "52:54:0a:01:00:0d", Addresses: prefixes("2001:db8::13/64")},
		{Machine: "d", Started: 7, Host: "x\ndhcp-host=y", MAC: "52:54:0a:01:00:0e",
			Addresses: prefixes("10.9.0.14/24")},
	}
	want := map[string]string{
		hostsFile: "52:54:0a:01:00:0b,set:vm52540a01000b,10.1.0.11,[2001:db8::11],wn-1,1h\n" +
			"52:54:0a:01:00:0c,set:vm52540a01000c,10.1.0.12,1h\n" +
			"52:54:0a:01:00:0d,set:vm52540a01000d,[2001:db8::13],1h\n",
		optionsFile: "tag:vm52540a01000b,option:router,10.1.0.1\n" +
			"tag:vm52540a01000b,option:dns-server,10.1.0.2,10.0.0.53\n" +
			"tag:vm52540a01000b,option6:dns-server,[2001:db8::2],[2001:db8:5::53]\n" +
			"tag:vm52540a01000c,option:router\n" +
			"tag:vm52540a01000c,option:dns-server,10.1.0.2\n" +
			"tag:vm52540a01000d,option6:dns-server,[2001:db8::2]\n",
		namesFile: "10.1.0.11 wn-1.vms.example.org wn-1\n2001:db8::11 wn-1.vms.example.org wn-1\n",
	}
	if diff := cmp.Diff(want, files(d, vms)); diff != "" {
		t.Error(diff)
	}
	d.Domain, d.Addresses = "", d.Addresses[:1]
	if got := files(d, vms)[namesFile]; got != "10.1.0.11 wn-1\n" {
		t.Errorf("without a domain, and for IPv4 alone: %q", got)
	}
}

// TestOthersProcess: a number that another process has by now is not the server.
func TestOthersProcess(t *testing.T) {
	self, ok := of(os.Getpid())
	if !ok || !self.alive() || (process{}).alive() || (process{self.PID, self.Started + 1}).alive() {
		t.Errorf("%+v, %v", self, ok)
	}
	if err := (process{self.PID, self.Started + 1}).signal(9); err != nil { // it would end this test
		t.Error(err)
	}
}
