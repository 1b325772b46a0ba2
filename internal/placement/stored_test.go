package placement

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestNetworksOf: a host whose agent would not keep VMs apart does not carry a network that wants it.
func TestNetworksOf(t *testing.T) {
	networks := []farm.FleetNetwork{{Name: "open", Bridge: "br0"}, {Name: "closed", Bridge: "br0", Closed: true},
		{Name: "isolated", Bridge: "br0", Isolate: true}, {Name: "others", Bridge: "br0", Hosts: []string{"gpu-*"}},
		{Name: "away", Bridge: "br1"}, {Name: "none", Closed: true}}
	for capability, want := range map[int][]string{
		filterCapability - 1: {"open"}, filterCapability: {"open", "closed", "isolated", "none"}} {
		h := farm.Host{Name: "node-1", Facts: farm.Facts{Networks: []string{"br0"}, Capability: capability}}
		if got := NetworksOf(h, networks); !slices.Equal(got, want) {
			t.Errorf("capability %d: %v, want %v", capability, got, want)
		}
	}
	for _, other := range []farm.FleetNetwork{{Name: "a", Closed: true}, {Name: "a", Isolate: true}} {
		if SameHosts(farm.FleetNetwork{Name: "a"}, other) {
			t.Errorf("the same hosts carry %+v and one that is open", other)
		}
	}
}

// TestDisplay: a VM with a display goes where the agent knows displays, whatever people call their hosts.
func TestDisplay(t *testing.T) {
	for capability, want := range map[int]string{displayCapability - 1: "", displayCapability: "yes"} {
		h := farm.Host{Labels: map[string]string{displayLabel: "yes"}, Facts: farm.Facts{Capability: capability}}
		if got := LabelsOf(h, farm.Cell{})[displayLabel]; got != want {
			t.Errorf("capability %d: label %q, want %q", capability, got, want)
		}
	}
	for display, want := range map[bool][]string{false: {"gpu"}, true: {"gpu", displayLabel}} {
		vm := farm.VM{Needs: []string{"gpu"}, Shape: farm.Shape{Display: display}}
		if got := RequestOf(vm, nil, nil).Needs; !slices.Equal(got, want) {
			t.Errorf("display %v: needs %v, want %v", display, got, want)
		}
	}
}
