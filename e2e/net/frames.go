package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Frames as a hostile guest makes them. Checksums of what a bridge does not look into are left out.

// Types of frames.
const (
	typeIP4   = 0x0800
	typeARP   = 0x0806
	typeRARP  = 0x8035
	typeTag   = 0x8100
	typeIP6   = 0x86dd
	typeQinQ  = 0x88a8
	typeLLC   = 0 // filled with the length of the frame
	protoICMP = 1
	protoIGMP = 2
	protoTCP  = 6
	protoUDP  = 17
	protoESP  = 50
	proto6    = 58 // ICMPv6
	extHop    = 0
	extFrag   = 44
	extDest   = 60
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func be16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// eth is a frame; dst nil: to all.
func eth(dst, src net.HardwareAddr, kind int, payload []byte) []byte {
	if dst == nil {
		dst = broadcast
	}
	if kind == typeLLC {
		kind = len(payload)
	}
	f := slices.Concat(dst, src, be16(kind), payload)
	return append(f, make([]byte, max(0, 60-len(f)))...)
}

// tagged is a frame with a tag of 802.1Q, or another of its kind, put into it.
func tagged(frame []byte, kind, id int) []byte {
	return slices.Concat(frame[:12], be16(kind), be16(id), frame[12:])
}

// arp is ARP's packet.
func arp(op int, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	if targetMAC == nil {
		targetMAC = make(net.HardwareAddr, 6)
	}
	return slices.Concat(be16(1), be16(typeIP4), []byte{6, 4}, be16(op), senderMAC, sender.AsSlice(), targetMAC,
		target.AsSlice())
}

// ip4 is a packet; offset is what its field of flags and fragment offset has.
func ip4(src, dst netip.Addr, proto, offset int, payload []byte) []byte {
	h := slices.Concat([]byte{0x45, 0}, be16(20+len(payload)), []byte{0, 7}, be16(offset),
		[]byte{64, byte(proto), 0, 0}, src.AsSlice(), dst.AsSlice())
	sum := 0
	for i := 0; i < len(h); i += 2 {
		sum += int(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	copy(h[10:], be16(^sum))
	return append(h, payload...)
}

func ip6(src, dst netip.Addr, next int, payload []byte) []byte {
	return slices.Concat([]byte{0x60, 0, 0, 0}, be16(len(payload)), []byte{byte(next), 255}, src.AsSlice(),
		dst.AsSlice(), payload)
}

// ext is an extension header of eight bytes with nothing but padding.
func ext(next int, payload []byte) []byte {
	return slices.Concat([]byte{byte(next), 0, 1, 4, 0, 0, 0, 0}, payload)
}

// frag is IPv6's header of a fragment; offset in units of eight bytes.
func frag(next, offset int, more bool, payload []byte) []byte {
	field := offset << 3
	if more {
		field |= 1
	}
	return slices.Concat([]byte{byte(next), 0}, be16(field), []byte{0, 0, 0, 9}, payload)
}

func udp(from, to int, payload string) []byte {
	return slices.Concat(be16(from), be16(to), be16(8+len(payload)), be16(0), []byte(payload))
}

// tcp is a segment with these flags: 2 is SYN, 16 ACK.
func tcp(from, to int, flags byte) []byte {
	return slices.Concat(be16(from), be16(to), make([]byte, 8), []byte{0x50, flags}, be16(1000), make([]byte, 4))
}

// icmp is ICMP's or ICMPv6's message.
func icmp(kind byte, body ...byte) []byte { return slices.Concat([]byte{kind, 0, 0, 0}, body) }

// nd is a message of neighbour discovery about a target, with the flags of an advertisement.
func nd(kind, flags byte, target netip.Addr) []byte {
	return icmp(kind, slices.Concat([]byte{flags, 0, 0, 0}, target.AsSlice())...)
}

// Kinds of ICMPv6 messages.
const (
	routerSolicit = 133
	routerAdvert  = 134
	solicit       = 135
	advert        = 136
	redirect      = 137
	mld2          = 143
	echo          = 128
)
