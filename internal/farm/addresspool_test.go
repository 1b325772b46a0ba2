package farm

import (
	"net/netip"
	"testing"
)

func TestAddressPool(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.1-10.0.0.9", "10.0.0.9-10.0.0.1/24", "10.0.0.1-10.0.1.1/24",
		"::1-::9/64", "10.0.0.0-10.255.0.0/8", "x-10.0.0.1/24"} {
		if p, err := ParseAddressPool(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
	p, err := ParseAddressPool("10.102.0.254-10.102.1.1/16")
	if err != nil {
		t.Fatal(err)
	}
	taken := map[netip.Prefix]bool{}
	for _, want := range []string{"10.102.0.254/16", "10.102.0.255/16", "10.102.1.0/16", "10.102.1.1/16"} {
		lease, ok := p.Lease(func(a netip.Prefix) bool { return taken[a] })
		if !ok || lease.String() != want {
			t.Fatalf("lease %v %v, want %s", lease, ok, want)
		}
		taken[lease] = true
	}
	if lease, ok := p.Lease(func(a netip.Prefix) bool { return taken[a] }); ok {
		t.Errorf("a full pool leased %v", lease)
	}
	delete(taken, netip.MustParsePrefix("10.102.1.0/16"))
	if lease, _ := p.Lease(func(a netip.Prefix) bool { return taken[a] }); lease.String() != "10.102.1.0/16" {
		t.Errorf("the free one was not leased again: %v", lease)
	}
	if _, ok := (AddressPool{}).Lease(func(netip.Prefix) bool { return false }); ok {
		t.Error("no pool leased an address")
	}
	if got := MAC(netip.MustParseAddr("10.102.0.20")); got != "52:54:0a:66:00:14" {
		t.Errorf("MAC %s", got)
	}
}
