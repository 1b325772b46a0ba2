package lease

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

func TestParse(t *testing.T) {
	const list = "# of the registry\nWN1 52:54:00:00:00:01 10.1.0.11/24 2001:db8::11/64\n\n" +
		"wn2.site.org 52-54-00-00-00-02 2001:db8::12/64 # IPv6 alone\nwn3 52:54:00:00:00:03\n"
	all, err := Parse([]byte(list), "example.org")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all[0].Name != "wn1.example.org" || all[0].IPv4().String() != "10.1.0.11/24" ||
		all[0].IPv6().String() != "2001:db8::11/64" || all[1].Name != "wn2.site.org" ||
		all[1].MAC != "52:54:00:00:00:02" || all[1].IPv4().IsValid() || len(all[2].Addresses) != 0 {
		t.Errorf("%+v", all)
	}
	for _, bad := range []string{"wn1", "wn1 52:54:00:00:00:01 10.1.0.11", "wn1 53:54:00:00:00:01", "wn_1 52:54:00:00:00:01",
		"wn1 52:54:00:00:00:01 10.1.0.11/24 10.1.0.12/24", "wn1 52:54:00:00:00:01 127.0.0.1/8",
		"wn1 52:54:00:00:00:01 ::ffff:10.0.0.1/120", "wn1 52:54:00:00:00:01 fe80::1/64", "wn1 00:00:00:00:00:00",
		strings.Repeat("n", 63) + ".org 52:54:00:00:00:01", "a 52:54:00:00:00:01\nb 52:54:00:00:00:01", "a 52:54:00:00:00:01\nA 52:54:00:00:00:02",
		"a 52:54:00:00:00:01 10.0.0.1/24\nb 52:54:00:00:00:02 10.0.0.1/25"} {
		if all, err := Parse([]byte(bad), ""); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%q: %v, %v", bad, all, err)
		}
	}
}

func pool(t *testing.T, texts ...string) (pools []farm.AddressPool) {
	t.Helper()
	for _, text := range texts {
		p, err := farm.ParseAnyAddressPool(text)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, p)
	}
	return pools
}

func TestFromPools(t *testing.T) {
	both := pool(t, "10.1.0.254-10.1.1.1/16", "2001:db8::fe-2001:db8::101/64")
	if err := CheckPools(both); err != nil {
		t.Fatal(err)
	}
	all := FromPools(both, "wn-*", "example.org")
	var text strings.Builder
	for _, format := range Formats {
		if err := Export(&text, format, all[2:3]); err != nil {
			t.Fatal(err)
		}
	}
	const want = "10.1.1.0\twn-3.example.org wn-3\n2001:db8::100\twn-3.example.org wn-3\n" +
		"wn-3.example.org.\tIN\tA\t10.1.1.0\nwn-3.example.org.\tIN\tAAAA\t2001:db8::100\n" +
		"host wn-3.example.org { hardware ethernet 52:54:0a:01:01:00; fixed-address 10.1.1.0; " +
		"option host-name \"wn-3.example.org\"; }\n" +
		"host ip6-wn-3.example.org { hardware ethernet 52:54:0a:01:01:00; fixed-address6 2001:db8::100; " +
		"option host-name \"wn-3.example.org\"; }\n" +
		"dhcp-host=52:54:0a:01:01:00,wn-3.example.org,10.1.1.0,[2001:db8::100]\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	if len(all) != 4 || Export(&text, "bind", nil) == nil {
		t.Errorf("%d leases, or a format that there is not", len(all))
	}
	alone := FromPools(both[1:], "v6-*", "")
	if alone[3].MAC != "56:00:00:00:01:01" || alone[3].Name != "v6-4" || alone[3].IPv4().IsValid() {
		t.Errorf("%+v", alone[3])
	}
	for _, bad := range [][]farm.AddressPool{pool(t, "10.1.0.1-10.1.0.2/24", "2001:db8::1-2001:db8::3/64"),
		pool(t, "10.1.0.1-10.1.0.9/24", "10.1.0.9-10.1.0.10/24")} {
		if CheckPools(bad) == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func TestChoose(t *testing.T) {
	all := FromPools(pool(t, "10.1.0.1-10.1.0.3/24"), "wn*", "")
	var book Book
	var taken Taken
	choose := func(node, want string) {
		t.Helper()
		if l, _ := book.Choose(all, node, &taken); l.Name != want {
			t.Errorf("%q gets %q, want %q", node, l.Name, want)
		}
	}
	choose("", "wn1")
	choose("", "wn2") // wn1 has just come back
	choose("wn2", "wn2")
	choose("other", "wn3")
	choose("other", "wn3")
	choose("", "wn1") // the longest unused
	taken.Add(all[0])
	choose("", "wn2")
	other := all[1]
	other.Name, other.MAC = "x", "52:54:00:00:00:09" // the same address, by another entry
	taken.Add(other)
	choose("wn1", "wn3")
	taken.Add(all[2])
	choose("wn1", "")
}
