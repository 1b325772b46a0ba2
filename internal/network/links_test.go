package network

import (
	"slices"
	"testing"
)

// TestMarks: what kernels with and without VLAN filtering print of a bridge, its port and a guest.
func TestMarks(t *testing.T) {
	const text = `[{"mac":"33:33:00:00:00:01","ifname":"gvlan120","flags":["self"],"state":"permanent"},
{"mac":"0a:00:00:00:00:01","ifname":"gvlan120","flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"0a:00:00:00:00:01","ifname":"gvlan120","vlan":1,"flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"0a:00:00:00:00:02","ifname":"gvlan120","flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"e6:37:5f:f9:c1:f4","ifname":"gvlan120","vlan":1,"flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"e6:37:5f:f9:c1:f4","ifname":"gvlan120","flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"e6:37:5f:f9:c1:f5","ifname":"gvlan120p","flags":[],"master":"gvlan120","state":"permanent"},
{"mac":"52:54:0a:66:00:14","ifname":"vnet0","flags":[],"master":"gvlan120","state":""}]`
	var entries []forward
	if err := decode([]byte(text), &entries); err != nil {
		t.Fatal(err)
	}
	got := marks(link{Name: "gvlan120", Address: "e6:37:5f:f9:c1:f4"}, entries)
	if want := []string{"0a:00:00:00:00:01", "0a:00:00:00:00:02"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if mark("grange-00000001") == mark("grange-00000002") {
		t.Error("two machines have one mark")
	}
}
