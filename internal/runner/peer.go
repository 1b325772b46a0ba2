package runner

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/api"
)

// audience is who is let through to a published port: our own user and accounts of this host, over its loopback; or
// other hosts, whose users nobody here can tell apart.
type audience struct {
	name  string // of the site's, for people; "": our own user alone
	uids  []uint32
	hosts []netip.Addr
}

func audienceOf(to api.PublishTo) (a audience, err error) {
	a = audience{name: to.Name, uids: to.UIDs}
	for _, text := range to.Hosts {
		host, err := netip.ParseAddr(text)
		if err != nil {
			return a, err
		}
		a.hosts = append(a.hosts, host)
	}
	return a, nil
}

// String is what people are told.
func (a audience) String() string {
	switch {
	case a.name == "":
		return "for you alone"
	case len(a.hosts) == 0:
		return "for you and " + a.name
	}
	return "for " + a.name
}

// admits reports whether a connection is let through.
func (a audience) admits(conn net.Conn, users *peerUsers) bool {
	if len(a.hosts) > 0 {
		peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		return err == nil && slices.Contains(a.hosts, peer.Addr().Unmap())
	}
	uid, ok := users.of(conn)
	return ok && (uid == os.Getuid() || slices.Contains(a.uids, uint32(uid)))
}

// address is where the audience finds ports: on the loopback, or where this host's packets to other hosts come from.
func (a audience) address() (string, error) {
	if len(a.hosts) == 0 {
		return "127.0.0.1", nil
	}
	route, err := net.Dial("udp", netip.AddrPortFrom(a.hosts[0], 9).String()) // sends nothing
	if err != nil {
		return "", fmt.Errorf("there is no way from this host to %s: %w", a.name, err)
	}
	defer route.Close()
	return route.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// peerUsers finds the users who made connections over the loopback. One goroutine at a time uses it.
type peerUsers struct {
	kernel *diagnosis // nil: this kernel cannot be asked for single sockets
}

// newPeerUsers asks the kernel for the listener, to find out whether it can be asked.
func newPeerUsers(listener net.Addr) *peerUsers {
	kernel, err := newDiagnosis()
	if err != nil {
		return &peerUsers{}
	}
	at, err := netip.ParseAddrPort(listener.String())
	if err == nil {
		_, err = kernel.socket(at, netip.AddrPortFrom(at.Addr(), 0))
	}
	if err != nil {
		kernel.close()
		return &peerUsers{}
	}
	return &peerUsers{kernel}
}

func (p *peerUsers) close() {
	if p.kernel != nil {
		p.kernel.close()
	}
}

// of finds the user of a connection's other end. An end that was closed is nobody's.
func (p *peerUsers) of(conn net.Conn) (uid int, ok bool) {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return 0, false
	}
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return 0, false
	}
	if p.kernel != nil {
		info, err := p.kernel.socket(peer, local)
		return int(info.uid), err == nil && info.state == established && info.inode != 0
	}
	for _, list := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // a socket of IPv6 may speak IPv4
		f, err := os.Open(list)
		if err != nil {
			continue
		}
		uid, ok := ownerOf(f, peer, local)
		f.Close()
		if ok {
			return uid, true
		}
	}
	return 0, false
}

// ownerOf finds who has the socket of a connection, by its own two ends, in the kernel's list. One that its owner has
// closed is nobody's: the list then says root's.
func ownerOf(list io.Reader, from, to netip.AddrPort) (uid int, ok bool) {
	const connected = "01"
	ends, mapped := [2]string{hexAddr(from), hexAddr(to)}, [2]string{hexMapped(from), hexMapped(to)}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		// sl local_address rem_address st queues timer retransmits uid timeout inode …
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != connected || f[9] == "0" {
			continue
		}
		if at := [2]string{f[1], f[2]}; at != ends && at != mapped {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}

// hexMapped is hexAddr of the same address as a socket of IPv6 has it: ::ffff:127.0.0.1.
func hexMapped(a netip.AddrPort) string {
	return fmt.Sprintf("%016X%08X", 0, binary.NativeEndian.Uint32([]byte{0, 0, 0xff, 0xff})) + hexAddr(a)
}

// hexAddr is an address as the kernel's list has it: of IPv4, in the order of this machine's bytes.
func hexAddr(a netip.AddrPort) string {
	four := a.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(four[:]), a.Port())
}
