package runner

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

// Published is a TCP port of the VM that the user of this process may connect to.
type Published struct {
	Port uint16 // of the VM's own loopback
	Here uint16 // of 127.0.0.1 on this host; 0: the same, or another where that is taken
}

// codePublished is of our own word among the agent's events.
const codePublished = "published"

// ParsePublished reads PORT[:HERE] of flags.
func ParsePublished(texts []string) (all []Published, err error) {
	for _, text := range texts {
		port, here, given := strings.Cut(text, ":")
		var p Published
		if p.Port, err = parsePort(port); err == nil && given {
			p.Here, err = parsePort(here)
		}
		if err != nil {
			return nil, usage("--publish PORT, or --publish PORT:HERE", "--publish %q: %v", text, err)
		}
		all = append(all, p)
	}
	if len(all) > guest.MaxPublished {
		return nil, usage("", "%d ports to publish; at most %d", len(all), guest.MaxPublished)
	}
	return all, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	return uint16(n), nil
}

// door is where a port of the VM is on this host.
type door struct {
	net.Listener
	port uint16
}

type doors []door

// listen takes the ports of this host before anything else is done: one that is taken is no reason to end a VM.
func listen(all []Published) (doors, error) {
	var out doors
	for _, p := range all {
		l, err := listenAt(p)
		if err != nil {
			out.close()
			return nil, usage("leave HERE out, or choose another", "--publish %d:%d: %v", p.Port, p.Here, err)
		}
		out = append(out, door{l, p.Port})
	}
	return out, nil
}

func (d doors) close() {
	for _, one := range d {
		one.Close()
	}
}

func listenAt(p Published) (net.Listener, error) {
	if p.Here != 0 {
		return net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.Here))
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.Port))
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return net.Listen("tcp4", "127.0.0.1:0")
	}
	return l, err
}

// open lets connections through, over a stream of the session. It returns the ports for the VM's end, which connects to
// these and to nothing else.
func (d doors) open(session *guest.Session, use use, show func(api.JobEvent)) (ports []uint16) {
	if len(d) == 0 {
		return nil
	}
	relay := guest.NewRelayGuest(publishing{session.Stream(guest.StreamPublish)})
	go relay.Serve()
	for _, one := range d {
		ports = append(ports, one.port)
		show(api.JobEvent{Event: api.EventWarning, Code: codePublished,
			Message: fmt.Sprintf("port %d of the VM is %s here, for you alone", one.port, one.Addr())})
		go one.accept(relay, use)
	}
	return ports
}

// askedAtOnce is how many connections of a port are looked at at a time: each has the kernel write out all of its own.
const askedAtOnce = 4

func (d door) accept(relay *guest.RelayGuest, use use) {
	room := make(chan struct{}, askedAtOnce)
	for {
		conn, err := d.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // as too many open files
			time.Sleep(100 * time.Millisecond)
			continue
		}
		room <- struct{}{}
		go func() {
			ours := peerIsUs(conn)
			<-room
			if !ours {
				conn.Close()
				return
			}
			relay.Carry(used{conn.(*net.TCPConn), use}, d.port)
		}()
	}
}

// publishing is the stream as a relay's device. It ends with its session.
type publishing struct{ io.ReadWriter }

func (publishing) SetWriteDeadline(time.Time) error { return nil }

// used is a connection by which the user is active.
type used struct {
	*net.TCPConn
	use use
}

func (u used) Read(p []byte) (int, error) {
	n, err := u.TCPConn.Read(p)
	if n > 0 {
		u.use.noted()
	}
	return n, err
}

// peerIsUs reports whether a connection over the loopback was made by our own user.
func peerIsUs(conn net.Conn) bool {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return false
	}
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return false
	}
	for range 3 { // the kernel's list is not of one moment
		for _, list := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // a socket of IPv6 may speak IPv4
			f, err := os.Open(list)
			if err != nil {
				continue
			}
			uid, ok := ownerOf(f, peer, local)
			f.Close()
			if ok {
				return uid == os.Getuid()
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// ownerOf finds who has the socket of a connection, by its own two ends, in the kernel's list. One that its owner has
// closed is nobody's: the list then says root's.
func ownerOf(list io.Reader, from, to netip.AddrPort) (uid int, ok bool) {
	const established = "01"
	ends, mapped := [2]string{hexAddr(from), hexAddr(to)}, [2]string{hexMapped(from), hexMapped(to)}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		// sl local_address rem_address st queues timer retransmits uid timeout inode …
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != established || f[9] == "0" {
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
