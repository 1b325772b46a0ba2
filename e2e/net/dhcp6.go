package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// A DHCPv6 client (RFC 8415) that asks for one address and the name server, and says which it got.

// Messages and options.
const (
	solicit6, advertise6, request6, reply6            = 1, 2, 3, 7
	clientID, serverID, iaNA, iaAddr, wanted, elapsed = 1, 2, 3, 5, 6, 8
	dnsServers                                        = 23
)

type leased6 struct{ address, dns netip.Addr }

// ask6 runs it in a guest.
func (l *lab) ask6(g *guest) (got leased6, err error) {
	self, err := os.Executable()
	if err != nil {
		return got, err
	}
	if err := wait(func() bool {
		out, err := l.in(g, "ip", "-6", "address", "show", "dev", "eth0", "scope", "link", "-tentative")
		return err == nil && strings.Contains(out, "fe80::")
	}); err != nil {
		return got, fmt.Errorf("a link-local address: %w", err)
	}
	out, err := l.in(g, "env", asDHCP6+"=1", self)
	if err != nil {
		return got, err
	}
	words := strings.Fields(out)
	if len(words) != 2 {
		return got, fmt.Errorf("the client says %q", out)
	}
	got.address, err = netip.ParseAddr(words[0])
	dns, dnsErr := netip.ParseAddr(words[1])
	got.dns = dns
	return got, errors.Join(err, dnsErr)
}

func option6(kind int, content ...byte) []byte {
	return slices.Concat(be16(kind), be16(len(content)), content)
}

// options6 reads options; the last one of a kind counts.
func options6(b []byte) map[int][]byte {
	all := map[int][]byte{}
	for len(b) >= 4 {
		size := min(int(binary.BigEndian.Uint16(b[2:])), len(b)-4)
		all[int(binary.BigEndian.Uint16(b))] = b[4 : 4+size]
		b = b[4+size:]
	}
	return all
}

func beDHCP6() error {
	card, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp6", &net.UDPAddr{Port: 546})
	if err != nil {
		return err
	}
	defer conn.Close()
	own := slices.Concat(option6(clientID, slices.Concat(be16(3), be16(1), card.HardwareAddr)...),
		option6(wanted, be16(dnsServers)...), option6(elapsed, 0, 0))
	offer, err := exchange6(conn, card, solicit6, advertise6, slices.Concat(own, option6(iaNA, make([]byte, 12)...)))
	if err != nil {
		return err
	}
	reply, err := exchange6(conn, card, request6, reply6, slices.Concat(own, option6(serverID, offer[serverID]...),
		option6(iaNA, offer[iaNA]...)))
	if err != nil {
		return err
	}
	if len(reply[iaNA]) < 12 || len(reply[dnsServers]) < 16 {
		return fmt.Errorf("the reply lacks something: %v", reply)
	}
	address := options6(reply[iaNA][12:])[iaAddr]
	if len(address) < 16 {
		return fmt.Errorf("no address: %v", reply)
	}
	fmt.Println(netip.AddrFrom16([16]byte(address[:16])), netip.AddrFrom16([16]byte(reply[dnsServers][:16])))
	return nil
}

// exchange6 sends a message to all servers, some times, until an answer of this kind comes.
func exchange6(conn *net.UDPConn, card *net.Interface, kind, want byte, options []byte) (map[int][]byte, error) {
	id := []byte{0x67, 0x72, kind}
	to := &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547, Zone: card.Name}
	for range 10 {
		if _, err := conn.WriteToUDP(slices.Concat([]byte{kind}, id, options), to); err != nil {
			return nil, err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		for got := make([]byte, 4096); ; {
			n, err := conn.Read(got)
			if err != nil {
				break
			}
			if n > 4 && got[0] == want && bytes.Equal(got[1:4], id) {
				return options6(got[4:n]), nil
			}
		}
	}
	return nil, fmt.Errorf("no answer to message %d of DHCPv6", kind)
}
