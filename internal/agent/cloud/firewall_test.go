package cloud

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// TestFirewall: what the server sends of security groups is what the VM's network is held to. A rule that cannot be
// read lets nothing pass.
func TestFirewall(t *testing.T) {
	r := record{Wanted: fleet.WantedVM{Firewall: &fleet.Firewall{Rules: []fleet.FirewallRule{
		{Direction: "in", Protocol: "tcp", Ports: "22", Peers: []string{"192.0.2.0/24", "2001:db8::1/128"}},
		{Direction: "in", Protocol: "quic"}, {Direction: "sideways"}, {Direction: "in", Peers: []string{"somebody"}},
		{Direction: "in", Protocol: "tcp", Ports: "0"}, {Direction: "out"}}}}}
	want := &farm.Firewall{Rules: []farm.FirewallRule{{Protocol: farm.TCP, Ports: farm.PortRange{First: 22, Last: 22},
		Peers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::1/128")}},
		{Out: true}}}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, networkVM("grange-1", r).Firewall, same); diff != "" {
		t.Error(diff)
	}
	if got := networkVM("grange-1", record{}).Firewall; got != nil {
		t.Errorf("of a VM in no group: %+v", got)
	}
}

// TestFirewallLost: of a VM whose record is lost nothing passes until the server says what may; one that is in no group
// stays so.
func TestFirewallLost(t *testing.T) {
	for _, wall := range []*fleet.Firewall{nil, {Rules: []fleet.FirewallRule{{Direction: "in"}}}} {
		r := record{Wanted: fleet.WantedVM{ID: "0123456789abcdef", Firewall: wall}}
		got := networkVM("grange-1", recordOf(r.carried())).Firewall
		if (got != nil) != (wall != nil) || got != nil && len(got.Rules) != 0 {
			t.Errorf("of %+v stays %+v", wall, got)
		}
	}
}
