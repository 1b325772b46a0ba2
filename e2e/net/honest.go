package main

import "net/netip"

// honest are frames that a guest may send, by kinds, and that arrive.
var honest = []forgery{
	{"arp", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeARP, arp(1, me.mac, me.ip4, nil, v.ip4)),
			eth(v.mac, me.mac, typeARP, arp(2, me.mac, me.ip4, v.mac, v.ip4)),
			eth(nil, me.mac, typeARP, arp(1, me.mac, me.ip4, nil, me.ip4)),
			eth(nil, me.mac, typeARP, arp(1, me.mac, zero4, nil, me.ip4))}
	}},
	{"announced by its hypervisor", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeRARP, rarp(3, me.mac))}
	}},
	{"ipv4", func(me, v station) [][]byte {
		return [][]byte{eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoICMP, 0, icmp(8, 0, 1, 0, 1))),
			eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoTCP, 0, tcp(40000, 22, 2))),
			eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 0, udp(40000, 53, "?"))),
			eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 0x2000, udp(40000, 53, "the first"))),
			eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 3, []byte("the rest"))),
			eth(v.mac, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoESP, 0, make([]byte, 16))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, netip.MustParseAddr("224.0.0.22"), protoIGMP, 0, make([]byte, 8)))}
	}},
	{"ipv6", func(me, v station) [][]byte {
		return [][]byte{eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, proto6, icmp(echo, 0, 1, 0, 1))),
			eth(v.mac, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, protoTCP, tcp(40000, 22, 2))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, protoUDP, udp(40000, 53, "?"))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, extDest, ext(protoUDP, udp(40000, 53, "?")))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, extFrag,
				frag(protoUDP, 0, true, udp(40000, 53, "the first")))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, extFrag, frag(protoUDP, 3, false, []byte("the rest")))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, extFrag, frag(proto6, 0, true, icmp(echo, 0, 1, 0, 1)))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, extFrag, frag(proto6, 3, false, []byte("the rest")))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, protoESP, make([]byte, 16)))}
	}},
	{"neighbours", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP6, ip6(zero6, all6, proto6, nd(solicit, 0, me.ip6))), // is it taken?
			eth(nil, me.mac, typeIP6, ip6(zero6, all6, proto6, nd(solicit, 0, me.linkLocal))),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, proto6, nd(solicit, 0, v.ip6))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, all6, proto6, nd(solicit, 0, v.linkLocal))),
			eth(v.mac, me.mac, typeIP6, ip6(me.ip6, v.ip6, proto6, nd(advert, 0x60, me.ip6))),
			eth(v.mac, me.mac, typeIP6, ip6(me.linkLocal, v.ip6, proto6, nd(advert, 0x60, me.linkLocal)))}
	}},
	{"asks for addresses", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP4, ip4(zero4, all4, protoUDP, 0, udp(68, 67, "discover"))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, gateway, protoUDP, 0, udp(68, 67, "request"))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, netip.MustParseAddr("ff02::1:2"), protoUDP,
				udp(546, 547, "solicit"))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, all6, proto6, icmp(routerSolicit, 0, 0, 0, 0))),
			eth(nil, me.mac, typeIP6, ip6(zero6, all6, proto6, icmp(routerSolicit, 0, 0, 0, 0))),
			eth(nil, me.mac, typeIP6, ip6(zero6, all6, extHop, ext(proto6, icmp(mld2, 0, 0, 0, 0))))}
	}},
}
