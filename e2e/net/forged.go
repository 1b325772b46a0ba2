package main

import (
	"net"
	"net/netip"
	"slices"
)

// station is who is on the bridge.
type station struct {
	mac       net.HardwareAddr
	ip4, ip6  netip.Addr
	linkLocal netip.Addr
}

// Addresses that are nobody's of the two.
var (
	gateway   = netip.MustParseAddr("10.77.0.254")
	outside   = netip.MustParseAddr("192.0.2.9")
	outside6  = netip.MustParseAddr("2001:db8:9::9")
	metadata4 = netip.MustParseAddr("169.254.169.254")
	zero4     = netip.IPv4Unspecified()
	zero6     = netip.IPv6Unspecified()
	all4      = netip.MustParseAddr("255.255.255.255")
	all6      = netip.IPv6LinkLocalAllNodes()
)

// forgery are frames of one kind that a guest may not send: me sends them, and v is who it would be taken for, or would
// harm. A bridge without filters forwards them, which is tried first.
type forgery struct {
	name   string
	frames func(me, v station) [][]byte
}

// forgeries are all of them. A line more is a case more.
var forgeries = slices.Concat(forgedLinks, forgedARP, forgedIP4, forgedIP6, forgedND, forgedServers)

var forgedLinks = []forgery{
	{"mac", func(me, v station) [][]byte {
		return [][]byte{eth(nil, v.mac, typeARP, arp(1, me.mac, me.ip4, nil, v.ip4)),
			eth(nil, v.mac, typeIP4, ip4(me.ip4, all4, protoUDP, 0, udp(9, 9, "mac"))),
			eth(nil, v.mac, typeIP6, ip6(me.ip6, all6, protoUDP, udp(9, 9, "mac"))),
			eth(nil, v.mac, typeRARP, rarp(3, v.mac))}
	}},
	{"tag", func(me, v station) [][]byte {
		honest := eth(nil, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 0, udp(9, 9, "tag")))
		return [][]byte{tagged(honest, typeTag, 7), tagged(honest, typeTag, 0), tagged(honest, typeQinQ, 7),
			tagged(honest, 0x9100, 7), tagged(tagged(honest, typeTag, 7), typeQinQ, 8),
			tagged(tagged(honest, typeTag, 7), typeTag, 8),
			tagged(eth(nil, me.mac, typeARP, arp(2, v.mac, v.ip4, nil, me.ip4)), typeTag, 0),
			tagged(eth(nil, me.mac, typeIP6, ip6(me.linkLocal, all6, proto6, icmp(routerAdvert, make([]byte, 12)...))),
				typeTag, 0)}
	}},
	{"ethertype", func(me, v station) [][]byte {
		snap := append([]byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ip4(v.ip4, all4, protoUDP, 0, udp(9, 9, "snap"))...)
		frames := [][]byte{eth(nil, me.mac, typeLLC, snap),
			eth(nil, me.mac, typeLLC, append([]byte{0x42, 0x42, 3}, make([]byte, 35)...))} // a spanning tree's
		for _, kind := range []int{0x0842, 0x8137, 0x8847, 0x8863, 0x8864, 0x886f, 0x888e, 0x88cc, 0x88e5, 0x88f7,
			0x8906, 0xffff} {
			frames = append(frames, eth(nil, me.mac, kind, make([]byte, 46)))
		}
		return frames
	}},
	{"rarp", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeRARP, rarp(4, me.mac)), eth(nil, me.mac, typeRARP, rarp(1, me.mac))}
	}},
}

// rarp is what a hypervisor announces its machine with, as one.
func rarp(op int, mac net.HardwareAddr) []byte { return arp(op, mac, zero4, mac, zero4) }

var forgedARP = []forgery{
	{"arp sender mac", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeARP, arp(1, v.mac, me.ip4, nil, gateway)),
			eth(nil, me.mac, typeARP, arp(2, v.mac, me.ip4, v.mac, v.ip4))}
	}},
	{"arp sender ip", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeARP, arp(1, me.mac, v.ip4, nil, gateway)),
			eth(nil, me.mac, typeARP, arp(2, me.mac, v.ip4, v.mac, gateway)),
			eth(nil, me.mac, typeARP, arp(1, me.mac, v.ip4, nil, v.ip4)),
			eth(nil, me.mac, typeARP, arp(2, me.mac, gateway, v.mac, v.ip4))}
	}},
	{"arp metadata", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeARP, arp(2, me.mac, metadata4, v.mac, v.ip4)),
			eth(nil, me.mac, typeARP, arp(1, me.mac, metadata4, nil, metadata4))}
	}},
	{"arp probe", func(me, v station) [][]byte { // so that v defends an address, or gives it up
		return [][]byte{eth(nil, me.mac, typeARP, arp(1, me.mac, zero4, nil, v.ip4)),
			eth(nil, me.mac, typeARP, arp(2, me.mac, zero4, nil, me.ip4))}
	}},
	{"arp odd", func(me, v station) [][]byte {
		odd := func(at int, value byte) []byte {
			a := arp(1, me.mac, me.ip4, nil, v.ip4)
			a[at] = value
			return eth(nil, me.mac, typeARP, a)
		}
		short := eth(nil, me.mac, typeARP, arp(1, me.mac, me.ip4, nil, v.ip4))[:30]
		return [][]byte{odd(1, 6), odd(3, 1), odd(4, 8), odd(5, 16), odd(7, 8), short}
	}},
}

var forgedIP4 = []forgery{
	{"ipv4", func(me, v station) (frames [][]byte) {
		for _, src := range []netip.Addr{v.ip4, gateway, outside, metadata4, zero4, all4,
			netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("224.0.0.1")} {
			frames = append(frames, eth(nil, me.mac, typeIP4, ip4(src, v.ip4, protoUDP, 0, udp(9, 9, "ip"))),
				eth(nil, me.mac, typeIP4, ip4(src, v.ip4, protoTCP, 0, tcp(9, 80, 2))))
		}
		return frames
	}},
	{"ipv4 fragment", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP4, ip4(v.ip4, all4, protoUDP, 0x2000, udp(9, 9, "ip"))),
			eth(nil, me.mac, typeIP4, ip4(v.ip4, all4, protoUDP, 2, []byte("the rest")))}
	}},
	{"ipv4 routes", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoICMP, 0, icmp(5, me.ip4.AsSlice()...))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, all4, protoICMP, 0, icmp(9, 1, 2, 0, 60)))}
	}},
}

var forgedIP6 = []forgery{
	{"ipv6", func(me, v station) (frames [][]byte) {
		for _, src := range []netip.Addr{v.ip6, v.linkLocal, outside6, zero6, netip.IPv6Loopback(),
			me.ip6.Next().Next()} {
			frames = append(frames, eth(nil, me.mac, typeIP6, ip6(src, v.ip6, protoUDP, udp(9, 9, "ip"))),
				eth(nil, me.mac, typeIP6, ip6(src, v.ip6, protoTCP, tcp(9, 80, 2))),
				eth(nil, me.mac, typeIP6, ip6(src, all6, extHop, ext(protoUDP, udp(9, 9, "ip")))))
		}
		return frames
	}},
}

var forgedND = []forgery{
	{"na target", func(me, v station) (frames [][]byte) {
		na := nd(advert, 0x20, v.ip6)
		for _, src := range []netip.Addr{me.ip6, me.linkLocal, v.ip6} {
			frames = append(frames, eth(nil, me.mac, typeIP6, ip6(src, all6, proto6, na)),
				eth(nil, me.mac, typeIP6, ip6(src, all6, proto6, nd(advert, 0xe0, v.linkLocal))),
				eth(nil, me.mac, typeIP6, ip6(src, all6, extHop, ext(proto6, na))),
				eth(nil, me.mac, typeIP6, ip6(src, all6, extDest, ext(proto6, na))))
		}
		return frames
	}},
	{"na fragment", func(me, v station) [][]byte {
		na := nd(advert, 0x20, v.ip6)
		return [][]byte{eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, extFrag, frag(proto6, 0, false, na))), // atomic
			eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, extFrag, frag(proto6, 0, true, na[:8]))),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, extFrag, frag(extDest, 0, true, ext(proto6, nil)))),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, extFrag, frag(extDest, 1, false, na)))}
	}},
	{"ns", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP6, ip6(zero6, all6, proto6, nd(solicit, 0, v.ip6))), // v gives it up
			eth(nil, me.mac, typeIP6, ip6(zero6, all6, proto6, nd(solicit, 0, v.linkLocal))),
			eth(nil, me.mac, typeIP6, ip6(v.ip6, all6, proto6, nd(solicit, 0, me.ip6))),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, all6, extFrag, frag(proto6, 0, false, nd(solicit, 0, v.ip6))))}
	}},
	{"router", func(me, v station) (frames [][]byte) {
		ra := icmp(routerAdvert, make([]byte, 12)...)
		for _, message := range [][]byte{ra, nd(redirect, 0, v.ip6), icmp(138, make([]byte, 12)...)} {
			for _, src := range []netip.Addr{me.linkLocal, me.ip6, v.linkLocal} {
				frames = append(frames, eth(nil, me.mac, typeIP6, ip6(src, all6, proto6, message)),
					eth(nil, me.mac, typeIP6, ip6(src, all6, extHop, ext(proto6, message))),
					eth(nil, me.mac, typeIP6, ip6(src, all6, extDest, ext(extDest, ext(proto6, message)))),
					eth(nil, me.mac, typeIP6, ip6(src, all6, extFrag, frag(proto6, 0, false, message))),
					eth(nil, me.mac, typeIP6, ip6(src, all6, extFrag, frag(extDest, 0, true, ext(proto6, nil)))),
					eth(nil, me.mac, typeIP6, ip6(src, all6, extFrag, frag(extDest, 1, false, message))))
			}
		}
		return frames
	}},
}

var forgedServers = []forgery{
	{"dhcp", func(me, v station) [][]byte {
		return [][]byte{eth(nil, me.mac, typeIP4, ip4(me.ip4, all4, protoUDP, 0, udp(67, 68, "offer"))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 0, udp(1067, 68, "offer"))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, v.ip4, protoUDP, 0, udp(67, 9, "relay"))),
			eth(nil, me.mac, typeIP4, ip4(me.ip4, all4, protoUDP, 0x2000, udp(67, 68, "offer"))),
			eth(nil, me.mac, typeIP4, ip4(zero4, all4, protoUDP, 0, udp(67, 68, "offer"))),
			eth(nil, me.mac, typeIP4, ip4(gateway, all4, protoUDP, 0, udp(67, 68, "offer")))}
	}},
	{"dhcpv6", func(me, v station) [][]byte {
		offer := udp(547, 546, "advertise")
		return [][]byte{eth(nil, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, protoUDP, offer)),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, v.linkLocal, protoUDP, udp(1547, 546, "advertise"))),
			eth(nil, me.mac, typeIP6, ip6(me.ip6, v.linkLocal, protoUDP, udp(547, 9, "relay"))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, extDest, ext(protoUDP, offer))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, extFrag, frag(protoUDP, 0, true, offer[:8]))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, extFrag,
				frag(extDest, 0, true, ext(protoUDP, nil)))),
			eth(nil, me.mac, typeIP6, ip6(me.linkLocal, v.linkLocal, extFrag, frag(extDest, 1, false, offer)))}
	}},
}
