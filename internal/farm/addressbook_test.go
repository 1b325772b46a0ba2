package farm

import (
	"net/netip"
	"testing"
)

// TestAddressBook: a node keeps its address, and others do not get it as long as there is another.
func TestAddressBook(t *testing.T) {
	pool, err := ParseAddressPool("10.0.0.1-10.0.0.3/24")
	if err != nil {
		t.Fatal(err)
	}
	var b AddressBook
	taken := map[netip.Addr]bool{}
	for _, step := range []struct{ node, want string }{
		{"a", "10.0.0.1"}, {"-a", ""}, {"b", "10.0.0.2"}, {"a", "10.0.0.1"}, {"-a", ""}, {"-b", ""}, {"c", "10.0.0.3"},
		{"b", "10.0.0.2"}, {"-c", ""}, {"-b", ""},
		{"d", "10.0.0.1"}, // nobody has had it for longer
		{"a", "10.0.0.3"}, {"e", "10.0.0.2"}, {"f", "none"},
	} {
		if step.node[0] == '-' {
			for _, n := range b.last {
				if n.node == step.node[1:] {
					delete(taken, n.address.Addr())
				}
			}
			continue
		}
		address, ok := b.Lease(pool, step.node, taken)
		if got := address.Addr().String(); ok && got != step.want || !ok && step.want != "none" {
			t.Fatalf("%s got %s %v, want %s", step.node, got, ok, step.want)
		}
		taken[address.Addr()] = ok
	}
	other, err := ParseAddressPool("10.0.0.9-10.0.0.9/24")
	if err != nil {
		t.Fatal(err)
	}
	if address, ok := b.Lease(other, "a", map[netip.Addr]bool{}); !ok || address.Addr().String() != "10.0.0.9" {
		t.Errorf("behind a change of the configuration: %v %v", address, ok)
	}
}
