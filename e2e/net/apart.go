package main

import (
	"errors"
	"fmt"
	"net/netip"
)

// apartTests are about networks that keep their VMs apart, and about what the host alone may answer.
func apartTests() []test {
	return []test{{"apart isolated", isolated}, {"apart closed", closed}, {"apart metadata", metadataApart},
		{"apart restored", restored}}
}

// to are frames of each family from one to another, to whom the network would carry them.
func to(a, b station) [][]byte {
	return [][]byte{eth(b.mac, a.mac, typeIP4, ip4(a.ip4, b.ip4, protoUDP, 0, udp(40000, 40000, "x"))),
		eth(b.mac, a.mac, typeIP4, ip4(a.ip4, b.ip4, protoTCP, 0, tcp(40000, 22, 2))),
		eth(b.mac, a.mac, typeIP4, ip4(a.ip4, b.ip4, protoTCP, 0, tcp(40000, 22, 16))),
		eth(b.mac, a.mac, typeIP4, ip4(a.ip4, b.ip4, protoICMP, 0, icmp(8, 0, 1, 0, 1))),
		eth(b.mac, a.mac, typeIP6, ip6(a.ip6, b.ip6, protoUDP, udp(40000, 40000, "x"))),
		eth(b.mac, a.mac, typeIP6, ip6(a.ip6, b.ip6, protoTCP, tcp(40000, 22, 2))),
		eth(b.mac, a.mac, typeIP6, ip6(a.ip6, b.ip6, proto6, icmp(echo, 0, 1, 0, 1))),
		eth(b.mac, a.mac, typeIP6, ip6(a.linkLocal, b.linkLocal, protoUDP, udp(40000, 40000, "x")))}
}

// toAll are frames for everybody.
func toAll(a station) [][]byte {
	return [][]byte{eth(nil, a.mac, typeIP4, ip4(a.ip4, all4, protoUDP, 0, udp(40000, 40000, "x"))),
		eth(nil, a.mac, typeIP4, ip4(a.ip4, netip.MustParseAddr("10.77.255.255"), protoUDP, 0, udp(40000, 40000, "x"))),
		eth(nil, a.mac, typeIP4, ip4(a.ip4, netip.MustParseAddr("224.0.0.251"), protoUDP, 0, udp(5353, 5353, "x"))),
		eth(nil, a.mac, typeIP6, ip6(a.linkLocal, netip.MustParseAddr("ff02::fb"), protoUDP, udp(5353, 5353, "x")))}
}

// arrive wants frames to arrive, all of them.
func arrive(what string, from *guest, frames [][]byte, at *guest) error {
	n, lost, err := carried(from, frames, at)
	if err == nil && n != len(frames) {
		err = fmt.Errorf("%d of %d frames arrive, not %v", n, len(frames), lost)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// leak counts frames that arrive and should not.
func (f *figures) leak(what string, from *guest, frames [][]byte, at ...*guest) error {
	n, _, err := carried(from, frames, at...)
	f.Leaked += n
	if n > 0 {
		f.problems = append(f.problems, fmt.Sprintf("%s: %d of %d frames arrive", what, n, len(frames)))
	}
	return err
}

// isolated: two guests whose network isolates reach the uplink and a guest of a network that does not, not each other.
func isolated(l *lab, f *figures) error {
	return l.between(func(a, b *guest) error {
		c, err := l.raw()
		if err != nil {
			return err
		}
		a.vm.Isolated, b.vm.Isolated = true, true
		err = errors.Join(arrive("not isolated yet", a, to(a.station, b.station), b), l.fence(a), l.fence(b),
			l.fence(c),
			f.leak("isolated", a, append(to(a.station, b.station), toAll(a.station)...), b),
			f.leak("isolated, back", b, append(to(b.station, a.station), toAll(b.station)...), a),
			arrive("to the uplink", a, append(to(a.station, l.uplink.station), toAll(a.station)...), l.uplink),
			arrive("from the uplink", l.uplink, to(l.uplink.station, a.station), a),
			arrive("to one that is not isolated", a, to(a.station, c.station), c))
		a.vm.Isolated = false
		return errors.Join(err, l.fence(a), arrive("not isolated any more", a, to(a.station, b.station), b), l.end(c))
	})
}

// closed: a guest of a closed network reaches its gateway, name servers and the outside, and nobody else there.
func closed(l *lab, f *figures) error {
	return l.between(func(a, b *guest) error {
		server, server6 := netip.MustParseAddr("10.77.0.53"), netip.MustParseAddr("fd00:77::53")
		a.vm.Closed, a.vm.DNS = true, []netip.Addr{server, server6}
		up := l.uplink.mac
		past := func(dst, dst6 netip.Addr, port int) [][]byte {
			return [][]byte{eth(up, a.mac, typeIP4, ip4(a.ip4, dst, protoUDP, 0, udp(40000, port, "?"))),
				eth(up, a.mac, typeIP4, ip4(a.ip4, dst, protoTCP, 0, tcp(40000, port, 2))),
				eth(up, a.mac, typeIP6, ip6(a.ip6, dst6, protoUDP, udp(40000, port, "?"))),
				eth(up, a.mac, typeIP6, ip6(a.ip6, dst6, protoTCP, tcp(40000, port, 2)))}
		}
		needed := [][]byte{eth(nil, a.mac, typeARP, arp(1, a.mac, a.ip4, nil, gateway)),
			eth(nil, a.mac, typeIP4, ip4(zero4, all4, protoUDP, 0, udp(68, 67, "discover"))),
			eth(nil, a.mac, typeIP6, ip6(a.linkLocal, netip.MustParseAddr("ff02::1:2"), protoUDP,
				udp(546, 547, "solicit"))),
			eth(nil, a.mac, typeIP6, ip6(a.linkLocal, all6, proto6, icmp(routerSolicit, 0, 0, 0, 0))),
			eth(nil, a.mac, typeIP6, ip6(a.ip6, all6, proto6, nd(solicit, 0, b.ip6))),
			eth(up, a.mac, typeIP6, ip6(a.ip6, l.uplink.ip6, proto6, nd(advert, 0x60, a.ip6))),
			eth(up, a.mac, typeIP4, ip4(a.ip4, gateway, protoTCP, 0, tcp(40000, 22, 2)))}
		return errors.Join(arrive("open", a, append(to(a.station, b.station), toAll(a.station)...), b), l.fence(a),
			f.leak("closed", a, append(to(a.station, b.station), toAll(a.station)...), b, l.uplink),
			f.leak("closed, past the gateway", a, past(b.ip4, b.ip6, 80), b, l.uplink),
			f.leak("another port of a name server", a, past(server, server6, 80), b, l.uplink),
			arrive("name servers", a, past(server, server6, 53), l.uplink),
			arrive("outside", a, past(outside, outside6, 443), l.uplink),
			arrive("what a network needs", a, needed, l.uplink), l.closedToUnknown(f, a, b))
	})
}

// closedToUnknown: where a network leases IPv4 alone, nobody knows which addresses of IPv6 are local.
func (l *lab) closedToUnknown(f *figures, a, b *guest) error {
	a.vm.Addresses = a.vm.Addresses[:1]
	formed := a.station
	id := a.linkLocal.As16()
	formed.ip6 = netip.AddrFrom16([16]byte(append(netip.MustParseAddr("fd00:77::").AsSlice()[:8], id[8:]...)))
	return errors.Join(l.fence(a), f.leak("IPv6 formed from the MAC", a, to(formed, b.station), b))
}

// metadataApart: nobody but the host is asked for metadata, or can answer.
func metadataApart(l *lab, f *figures) error {
	return l.between(func(a, b *guest) error {
		question := [][]byte{eth(nil, a.mac, typeARP, arp(1, a.mac, a.ip4, nil, metadata4)),
			eth(l.uplink.mac, a.mac, typeIP4, ip4(a.ip4, metadata4, protoTCP, 0, tcp(40000, 80, 2)))}
		up := l.uplink.station
		answer := [][]byte{eth(a.mac, up.mac, typeARP, arp(2, up.mac, metadata4, a.mac, a.ip4)),
			eth(nil, up.mac, typeARP, arp(1, up.mac, metadata4, nil, metadata4)),
			eth(a.mac, up.mac, typeIP4, ip4(metadata4, a.ip4, protoTCP, 0, tcp(80, 40000, 18)))}
		return errors.Join(arrive("no filter", a, question, l.uplink), arrive("no filter", l.uplink, answer, a),
			l.fence(a),
			f.leak("asked of others", a, question, b, l.uplink), f.leak("answered by others", l.uplink, answer, a))
	})
}

// restored: after somebody has flushed the host's rules the next look of the agent brings all back.
func restored(l *lab, f *figures) error {
	return l.between(func(a, b *guest) error {
		a.vm.Isolated, b.vm.Isolated, a.vm.Closed = true, true, true
		var forged [][]byte
		for _, c := range forgeries {
			forged = append(forged, c.frames(a.station, b.station)...)
		}
		err := errors.Join(l.fence(a), l.fence(b), l.must("nft flush ruleset"), l.restore(a, b))
		if err != nil {
			return err
		}
		n, _, err := carried(a, forged, b, l.uplink)
		f.Spoofed += n
		return errors.Join(err, f.leak("isolated", a, to(a.station, b.station), b),
			f.leak("closed", a, toAll(a.station), b, l.uplink), l.honestlyUp(a))
	})
}

func (l *lab) honestlyUp(a *guest) error {
	return arrive("honest", a, [][]byte{eth(nil, a.mac, typeARP, arp(1, a.mac, a.ip4, nil, gateway))}, l.uplink)
}
