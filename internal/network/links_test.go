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

// TestIntact: what lacks anything is looked at closely, and what lacks nothing is not.
func TestIntact(t *testing.T) {
	up, ours := []string{"BROADCAST", "UP"}, groupText
	whole := []link{{Name: "gvlan120", Group: ours, Flags: up}, {Name: "vnet0", Master: "gvlan120", Flags: up},
		{Name: "gvlan120p", Master: "gvlan120", Group: ours, Flags: up}, {Name: "vnet1", Master: "br0", Flags: up}}
	if !intact("gvlan120", 1, whole) {
		t.Error("a network that has all is not intact")
	}
	if intact("gvlan120", 2, whole) || intact("gvlan121", 1, whole) || intact("gvlan120", 1, nil) {
		t.Error("a network with a VM that is not plugged in, or one that is not there, is intact")
	}
	for i := range 3 {
		if intact("gvlan120", 1, slices.Delete(slices.Clone(whole), i, i+1)) {
			t.Errorf("without %s it is intact", whole[i].Name)
		}
	}
	for _, spoil := range []func(l *link){func(l *link) { l.Flags = nil }, func(l *link) { l.Group = "default" }} {
		for _, i := range []int{0, 2} {
			links := slices.Clone(whole)
			spoil(&links[i])
			if intact("gvlan120", 1, links) {
				t.Errorf("with %+v it is intact", links[i])
			}
		}
	}
}
