package metadata

import (
	"net"
	"net/netip"
	"sync"
)

// The most connections that there are at a time: of one address, which is a VM's, and in all. More are closed at once:
// a VM that opens thousands shall not keep its neighbours from asking, nor take the descriptors of the host's agent.
const (
	maxOfOne = 16
	maxOfAll = 512
)

// fewConnections is a listener that keeps to these limits.
type fewConnections struct {
	net.Listener

	mu  sync.Mutex
	of  map[netip.Addr]int
	all int
}

func newFewConnections(l net.Listener) *fewConnections {
	return &fewConnections{Listener: l, of: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within the limits.
func (l *fewConnections) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(c.RemoteAddr().String())
		if l.enter(from) {
			return &countedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		c.Close()
	}
}

func (l *fewConnections) enter(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxOfAll || l.of[a] >= maxOfOne {
		return false
	}
	l.all++
	l.of[a]++
	return true
}

func (l *fewConnections) leave(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[a]--; l.of[a] == 0 {
		delete(l.of, a)
	}
}

type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// addressOf is the address of a remote end in net/http's form; the zero value where it is none.
func addressOf(remote string) netip.Addr {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}
