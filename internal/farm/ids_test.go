package farm

import (
	"net/netip"
	"testing"
)

func TestIDs(t *testing.T) {
	for text, want := range map[string]string{"100-199,300": "100-199,300", "7": "7", "1-4094": "1-4094",
		" 5, 6": "5,6", "5-5": "5"} {
		ids, err := ParseIDs(text, MaxVLAN)
		if err != nil || ids.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, ids, err, want)
		}
	}
	for _, text := range []string{"", ",", "0", "4095", "5-", "-5", "9-5", "05", "+5", "a", "1-4095", "1--2", "1-2-3"} {
		if ids, err := ParseIDs(text, MaxVLAN); !IsCode(err, CodeBadNetworkID) {
			t.Errorf("%q: %v, %v", text, ids, err)
		}
	}
	ids, others := IDs{{100, 199}, {300, 300}}, IDs{{200, 299}}
	for id, want := range map[int]bool{99: false, 100: true, 199: true, 200: false, 300: true, 301: false, 0: false} {
		if ids.Has(id) != want {
			t.Errorf("%v has %d: %v", ids, id, !want)
		}
	}
	if ids.Meets(others) || !ids.Meets(IDs{{250, 300}}) || !others.Meets(IDs{{1, MaxVLAN}}) {
		t.Error("ranges that have a number in common, and that have none, are taken for each other")
	}
}

// TestCarriedBy: what a host says of itself is what its networks are chosen by.
func TestCarriedBy(t *testing.T) {
	host := HostNetworks{Trunks: map[string]IDs{"eno2": {{100, 199}}, "eno1": {{5, 5}}},
		Overlay: Overlay{VNIs: IDs{{7000, 7999}}}}
	if got := host.Carried(); len(got) != 2 {
		t.Errorf("a host without an address among its peers carries %q", got)
	}
	host.Overlay.Local = netip.MustParseAddr("2001:db8::1")
	if got := host.Carried(); !Network("vxlan:7001").CarriedBy(got) || Network("vxlan:8000").CarriedBy(got) {
		t.Errorf("of %q it carries other VNIs than it says", got)
	}
	for _, c := range []struct {
		n       Network
		carried []string
		want    bool
	}{
		{"vlan:120", host.Carried(), true}, {"vlan:200", host.Carried(), false}, {"vlan:5", host.Carried(), true},
		{"vlan:7000", host.Carried(), false}, {"bridge:br0", []string{"br0"}, true},
		{"bridge:br1", []string{"br0"}, false},
		{"vlan:120", []string{"gvlan120"}, false}, {"vxlan:120", []string{"vlan:100-199"}, false},
		{"vlan:120", []string{"vlan:junk", "vlan", "", "vlan:120"}, true}, {"macvtap:eno2", []string{"eno2"}, false},
		{"lan", []string{"lan"}, false},
	} {
		if got := c.n.CarriedBy(c.carried); got != c.want {
			t.Errorf("%s of %q: %v", c.n, c.carried, got)
		}
	}
}
