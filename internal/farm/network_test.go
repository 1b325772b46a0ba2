package farm

import (
	"slices"
	"testing"
)

func TestNetworkBridge(t *testing.T) {
	for text, want := range map[string]string{"none": "", "user": "", "bridge:br0": "br0", "bridge:": "", "br0": "",
		"vlan:120": "gvlan120", "vxlan:16777215": "gvxlan16777215", "macvtap:eno2": "", "vlan:0": ""} {
		if got := Network(text).Bridge(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{"none": true, "user": true, "": false, "bridge:br0": true, "bridge:": false,
		"bridge:..": false, "bridge:0123456789abcdef": false, "bridge:0123456789abcde": true, "bridge:a/b": false,
		"bridge:a'b": false, "vlan:1": true, "vlan:4094": true, "vlan:4095": false, "vlan:0": false, "vlan:01": false,
		"vlan:+1": false, "vlan": false, "vlan:a": false, "vlan:1,2": false, "vxlan:16777215": true,
		"vxlan:16777216": false, "macvtap:eno2": true, "macvtap:a/b": false} {
		if got := Network(text).valid(); got != want {
			t.Errorf("%s: valid is %v", text, got)
		}
	}
}

// TestNetworkKinds: each kind has a word of its own, and takes nothing behind a colon, or what it says.
func TestNetworkKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range NetworkKinds {
		if k.Name == "" || seen[k.Name] || (k.Of == "") != (k.valid == nil && k.most == 0) {
			t.Errorf("%+v has no name, comes twice, or does not say what it takes", k)
		}
		seen[k.Name] = true
		if n := Network(k.Name); n.valid() != (k.Of == "") {
			t.Errorf("%s: valid is %v", n, n.valid())
		}
		if n := Network(k.Name + ":"); n.valid() {
			t.Errorf("%s is taken", n)
		}
	}
	for n, want := range map[Network]bool{"": true, NetworkNone: true, NetworkUser: false, NetworkBridge("br0"): true} {
		if k, _ := n.Kind(); k.Local == want {
			t.Errorf("%q: of its host alone is %v", n, k.Local)
		}
	}
	if want := []string{"none", "user"}; !slices.Equal(JobNetworks(), want) {
		t.Errorf("jobs have %v, want %v", JobNetworks(), want)
	}
	const want = `no VM can have network "lan"; there are none, user, ` +
		`and for workers bridge:NAME, vlan:ID, vxlan:VNI, macvtap:CARD, sriov:CARD`
	err := Shape{CPUs: 1, Memory: GiB, Network: "lan"}.Validate()
	if err == nil || err.(*Error).Message != want {
		t.Errorf("%v, want %s", err, want)
	}
}
