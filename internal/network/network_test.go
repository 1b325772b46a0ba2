package network_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/network/networktest"
)

func TestNone(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: farm.NetworkNone})
}

func TestUser(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: farm.NetworkUser, Card: hyper.Card{Type: hyper.UserCard}})
}

func TestBridge(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: farm.NetworkBridge("br0"),
		Setup:   []string{"ip link add br0 address 02:00:00:00:00:01 type bridge"},
		Invalid: []farm.Network{"bridge", "bridge:", "bridge:a/b", "bridge:0123456789abcdef"},
		Absent:  []farm.Network{farm.NetworkBridge("br1"), farm.NetworkBridge("lo")},
		Card:    hyper.Card{Type: hyper.BridgeCard, Bridge: "br0", MAC: networktest.MAC}})
}

// TestKinds: what the farm has a name for is made on hosts, and nothing else is.
func TestKinds(t *testing.T) {
	var names []string
	for _, k := range farm.NetworkKinds {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	if made := slices.Sorted(maps.Keys(network.Kinds)); !slices.Equal(names, made) {
		t.Errorf("the farm has networks %v, and hosts make %v", names, made)
	}
}
