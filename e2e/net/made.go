package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
)

// madeTests are about bridges that the agent makes, of VLANs and overlays, where the host is nobody.
func madeTests() []test { return []test{{"made apart from the host", apartFromHost}} }

// apartFromHost: a guest on an overlay reaches none of its host's addresses, nor others through it, and gets no answer
// to its ARP; it reaches the metadata service there, and an address that an administrator gave the bridge itself.
func apartFromHost(l *lab, f *figures) error {
	const overlay = farm.Network("vxlan:7001")
	settings := network.Settings{Host: farm.HostNetworks{Overlay: farm.Overlay{Local: netip.MustParseAddr("10.77.0.1"),
		VNIs: farm.IDs{{First: 7000, Last: 7999}}}}}
	kind, vm := network.Of(overlay), network.VM{Name: "grange-made", Network: overlay}
	if _, err := kind.Prepare(l.ctx, vm, settings); err != nil {
		return err
	}
	g, err := l.guestOn(overlay, asleep, true)
	if err == nil {
		err = triesHost(l, f, g)
		g.kill()
		err = errors.Join(err, kind.Release(l.ctx, g.vm.Name))
	}
	return errors.Join(err, kind.Release(l.ctx, vm.Name))
}

// triesHost has a guest try the host's address on another network.
func triesHost(l *lab, f *figures, g *guest) error {
	host := netip.MustParseAddr("10.77.0.1")
	open, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 9})
	if err != nil {
		return err
	}
	defer open.Close()
	on := g.vm.Network.Bridge()
	made, err := net.InterfaceByName(on)
	if err != nil {
		return err
	}
	// A host that routes, and checks nobody's source: what the overlay's rules do not keep back comes through. Later
	// tests have another one.
	defer l.must("sysctl -qw net.ipv4.ip_forward=0", fmt.Sprintf("ip neigh del %v dev %s", l.uplink.ip4, bridge))
	if err := l.must("ip address add 169.254.169.254/32 dev "+on, "sysctl -qw net.ipv4.ip_forward=1",
		"sysctl -qw net.ipv4.conf.all.rp_filter=0", "sysctl -qw net.ipv4.conf."+on+".rp_filter=0",
		fmt.Sprintf("ip neigh replace %v lladdr %v dev %s", l.uplink.ip4, l.uplink.mac, bridge)); err != nil {
		return err
	}
	to := func(a netip.Addr) [][]byte {
		return [][]byte{eth(made.HardwareAddr, g.mac, typeIP4, ip4(g.ip4, a, protoUDP, 0, udp(9, 9, "made")))}
	}
	routed := func() (bool, error) {
		l.uplink.received()
		err := g.send(to(l.uplink.ip4))
		return slices.ContainsFunc(l.uplink.received(), func(frame []byte) bool {
			return bytes.Contains(frame, []byte("made"))
		}), err
	}
	n, err := heard(g, to(host), open)
	through, err2 := routed()
	if err = errors.Join(err, err2); err != nil || n == 0 || !through {
		return errors.Join(fmt.Errorf("without filters the host hears %d datagrams, and routes: %t", n, through), err)
	}
	if err := l.fence(g); err != nil {
		return err
	}
	n, err = heard(g, append(to(host), to(all4)...), open)
	f.Leaked += count(f, "a guest on an overlay reaches its host", n > 0)
	through, err2 = routed()
	f.Leaked += count(f, "its host routes what a guest on an overlay sends", through)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	n, err = heard(g, to(metadata4), open)
	f.Leaked += count(f, "a guest on an overlay reaches another service than that of metadata", n > 0)
	if err := errors.Join(err, l.must("ip address add 10.99.0.1/24 dev "+on)); err != nil {
		return err
	}
	given := netip.MustParseAddr("10.99.0.1")
	if n, err := heard(g, to(given), open); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("the host hears %d of 1 datagram to %v, which it has there", n, given), err)
	}
	segments, err := net.ListenIP("ip4:tcp", &net.IPAddr{IP: metadata4.AsSlice()})
	if err != nil {
		return err
	}
	defer segments.Close()
	ask := func(port int) [][]byte {
		return [][]byte{eth(made.HardwareAddr, g.mac, typeIP4, ip4(g.ip4, metadata4, protoTCP, 0, tcp(40000, port, 2)))}
	}
	if n, err := heard(g, ask(80), segments); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("the host hears %d of 1 segment to its metadata service", n), err)
	}
	n, err = heard(g, ask(22), segments)
	f.Leaked += count(f, "a guest on an overlay reaches ssh at the metadata address", n > 0)
	return errors.Join(err, asksHost(f, g, host))
}

// asksHost has a guest ask for the hardware address of the host's address on another network.
func asksHost(f *figures, g *guest, host netip.Addr) error {
	answered := func(of netip.Addr) (bool, error) {
		g.received()
		err := g.send([][]byte{eth(nil, g.mac, typeARP, arp(1, g.mac, g.ip4, nil, of))})
		for _, frame := range g.received() {
			if bytes.Equal(frame[12:14], be16(typeARP)) && bytes.Contains(frame[14:], of.AsSlice()) {
				return true, err
			}
		}
		return false, err
	}
	elsewhere, err := answered(host)
	f.Leaked += count(f, "the host answers ARP on an overlay for an address that it has elsewhere", elsewhere)
	if there, err2 := answered(metadata4); err2 != nil || !there {
		return errors.Join(errors.New("the host does not answer ARP for the metadata address"), err, err2)
	}
	return err
}
