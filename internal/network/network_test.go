package network_test

import (
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// TestLargeFrames: guests learn of an unusual MTU.
func TestLargeFrames(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: farm.NetworkBridge("br0"),
		Setup: []string{"ip link add br0 address 02:00:00:00:00:01 type bridge", "ip link set dev br0 mtu 9000"},
		Card:  hyper.Card{Type: hyper.BridgeCard, Bridge: "br0", MAC: networktest.MAC, MTU: 9000}})
}

// TestServed is the contract where the host has a DHCP server on the network: with the administrator's bridge, and with
// one that is made.
func TestServed(t *testing.T) {
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("needs dnsmasq")
	}
	served := func(n farm.Network, h farm.HostNetworks) network.Settings {
		h.DHCP = map[farm.Network]farm.DHCPServer{n: {Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}
		return network.Settings{Host: h}
	}
	t.Run("bridge", func(t *testing.T) {
		n := farm.NetworkBridge("br0")
		networktest.Run(t, networktest.Lab{Network: n,
			Setup:    []string{"ip link add br0 address 02:00:00:00:00:01 type bridge"},
			Settings: served(n, farm.HostNetworks{}),
			Card:     hyper.Card{Type: hyper.BridgeCard, Bridge: "br0", MAC: networktest.MAC}})
	})
	t.Run("vxlan", func(t *testing.T) {
		needs(t, "ip link add name v0 type vxlan id 7001 local 192.0.2.1 dstport 4789")
		n := farm.NetworkVXLAN(7001)
		networktest.Run(t, networktest.Lab{Network: n,
			Setup: []string{"ip link set dev lo mtu 1500 up", "ip address add 192.0.2.1/32 dev lo"},
			Settings: served(n, farm.HostNetworks{Overlay: farm.Overlay{Local: netip.MustParseAddr("192.0.2.1"),
				VNIs: farm.IDs{{First: 7000, Last: 7999}}}}),
			Card: hyper.Card{Type: hyper.BridgeCard, Bridge: "gvxlan7001", MAC: networktest.MAC, MTU: 1450}})
	})
}

// TestVLANLargeFrames is that in a VLAN, which has the MTU of its card.
func TestVLANLargeFrames(t *testing.T) {
	needs(t, "ip link add name v0 link eno2 type vlan id 120")
	networktest.Run(t, networktest.Lab{Network: farm.NetworkVLAN(120),
		Setup: append(slices.Clone(card), "ip link set dev eno2 mtu 9000"),
		Settings: network.Settings{Host: farm.HostNetworks{Trunks: map[string]farm.IDs{
			"eno2": {{First: 100, Last: 199}}}}},
		Card: hyper.Card{Type: hyper.BridgeCard, Bridge: "gvlan120", MAC: networktest.MAC, MTU: 9000}})
}

// card is a host with a card eno2, and no cable in it.
var card = []string{"ip tuntap add dev eno2 mode tap", "ip link set dev eno2 addrgenmode none",
	"ip link set dev eno2 up"}

// TestVLAN runs where the kernel has 802.1Q.
func TestVLAN(t *testing.T) {
	needs(t, "ip link add name v0 link eno2 type vlan id 120")
	networktest.Run(t, networktest.Lab{Network: farm.NetworkVLAN(120), Setup: card,
		Invalid: []farm.Network{"vlan", "vlan:0", "vlan:4095", "vlan:0120", "vlan:a", "vlan:1-2"},
		Absent:  []farm.Network{farm.NetworkVLAN(99), farm.NetworkVLAN(200)},
		Settings: network.Settings{Host: farm.HostNetworks{Trunks: map[string]farm.IDs{
			"eno2": {{First: 100, Last: 199}}, "eno9": {{First: 200, Last: 299}}}}},
		Card: hyper.Card{Type: hyper.BridgeCard, Bridge: "gvlan120", MAC: networktest.MAC}})
}

func TestVXLAN(t *testing.T) {
	needs(t, "ip link add name v0 type vxlan id 7001 local 192.0.2.1 dstport 4789")
	setup := []string{"ip link set dev lo mtu 1500 up", "ip address add 192.0.2.1/32 dev lo"}
	for local, mtu := range map[string]int{"192.0.2.1": 1450, "::1": 1430} {
		t.Run(local, func(t *testing.T) {
			local := netip.MustParseAddr(local)
			o := farm.Overlay{Local: local, Peers: []netip.Addr{local, local.Next(), local.Next().Next()},
				VNIs: farm.IDs{{First: 7000, Last: 7999}}}
			networktest.Run(t, networktest.Lab{Network: farm.NetworkVXLAN(7001), Setup: setup,
				Invalid:  []farm.Network{"vxlan", "vxlan:0", "vxlan:16777216", "vxlan:x"},
				Absent:   []farm.Network{farm.NetworkVXLAN(8000)},
				Settings: network.Settings{Host: farm.HostNetworks{Overlay: o}},
				Card:     hyper.Card{Type: hyper.BridgeCard, Bridge: "gvxlan7001", MAC: networktest.MAC, MTU: mtu}})
		})
	}
}

func TestMacvtap(t *testing.T) {
	networktest.Run(t, networktest.Lab{Network: "macvtap:eno2", Setup: card,
		Invalid:  []farm.Network{"macvtap", "macvtap:a/b", "macvtap:0123456789abcdef"},
		Absent:   []farm.Network{"macvtap:lo", "macvtap:eno9"},
		Settings: network.Settings{Host: farm.HostNetworks{Macvtap: []string{"eno2", "eno9"}}},
		Card:     hyper.Card{Type: hyper.MacvtapCard, Source: "eno2", MAC: networktest.MAC}})
}

// needs skips a test where the kernel cannot make a kind of link.
func needs(t *testing.T, command string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	done := make(chan string)
	go func() {
		runtime.LockOSThread()
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err.Error()
			return
		}
		for _, line := range append(slices.Clone(card), command) {
			words := strings.Fields(line)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				done <- line + ": " + string(out)
				return
			}
		}
	}()
	if why := <-done; why != "" {
		t.Skip("needs a kernel that has it: " + why)
	}
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
