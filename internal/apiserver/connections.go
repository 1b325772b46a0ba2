package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/throttle"
)

// Bounds of connections. Until its first request shows who calls, a connection is its address's: one of a lot of them
// makes room for others of that address, so that no flood keeps out whoever is quick, and thousands of hosts can be
// behind one address. From then on it is its caller's.
const (
	maxUnknown  = 2048            // whose caller is not known yet; a TLS handshake may hold a quarter of a MiB
	unknownTime = 2 * time.Second // that one has at least to show who calls
	// of one host or user: the streams of a server (512), and what polls and asks beside them
	maxOfOne   = 640
	spareFiles = 512 // for the database, logs and batch systems
)

// connections are those of one listener.
type connections struct {
	most, mostUnknown int
	graceful          time.Duration // unknownTime

	mu      sync.Mutex
	open    int
	unknown map[string][]*connection // by party, oldest first
	waiting int                      // in unknown
	of      map[string]int           // by caller
	freed   chan struct{}            // has an element when one was closed, or got its caller
}

// connection is one that was accepted.
type connection struct {
	net.Conn
	all      *connections
	party    string
	accepted time.Time
	caller   string // below the lock of all
	over     bool
}

// boundedListener accepts no more than its connections may be.
type boundedListener struct {
	net.Listener
	all      *connections
	arrivals *throttle.Arrivals // of a unix socket
	log      *slog.Logger       // for arrivals
	ended    chan struct{}
	end      func()
}

// bounded bounds the connections of a listener, to a share in quarters of the files that this process may have open.
func bounded(l net.Listener, quarters int) *boundedListener {
	most := 1024
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		most = int(min(limit.Cur, 1<<20))
	}
	most = max(most-spareFiles, spareFiles) * quarters / 4
	return newBounded(l, most, min(maxUnknown, most/2), unknownTime)
}

func newBounded(l net.Listener, most, mostUnknown int, graceful time.Duration) *boundedListener {
	b := &boundedListener{Listener: l, ended: make(chan struct{}),
		all: &connections{most: most, mostUnknown: mostUnknown, graceful: graceful, unknown: map[string][]*connection{},
			of: map[string]int{}, freed: make(chan struct{}, 1)}}
	b.end = sync.OnceFunc(func() { close(b.ended) })
	return b
}

// Accept takes the next connection when there is room for it. Until then the kernel keeps it.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admits(conn) {
			return l.await(conn)
		}
		conn.Close()
	}
}

// admits reports whether a connection is served: not on a unix socket where its user makes too many, or has closed it.
func (l *boundedListener) admits(conn net.Conn) bool {
	socket, ok := conn.(*net.UnixConn)
	if !ok || l.arrivals == nil {
		return true
	}
	cred, err := peer.Cred(socket)
	return err == nil && l.arrives(cred.Uid) && !peer.HungUp(socket)
}

// arrives counts a connection of a user. It reports whether the user may make it now. Root and the account of the
// server have no limit.
func (l *boundedListener) arrives(uid uint32) bool {
	if uid == 0 || int(uid) == os.Getuid() || l.arrivals.Admit(uid) {
		return true
	}
	if n := l.arrivals.Dropped(uid); n > 0 && l.log != nil {
		l.log.Warn("connections closed: the user makes too many", "uid", uid, "connections", n)
	}
	return false
}

// await waits for room for a connection.
func (l *boundedListener) await(conn net.Conn) (net.Conn, error) {
	c := &connection{Conn: conn, all: l.all, party: partyOf(conn), accepted: time.Now()}
	for {
		wait, oldest := l.all.enter(c)
		if oldest != nil {
			oldest.Close()
			continue
		}
		if wait == 0 {
			return c, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.all.freed:
		case <-l.ended:
			conn.Close()
			return nil, net.ErrClosed
		}
		timer.Stop()
	}
}

func (l *boundedListener) Close() error {
	l.end()
	return l.Listener.Close()
}

// partyOf names who a connection is counted for until its caller is known.
func partyOf(conn net.Conn) string {
	if u, ok := conn.(*net.UnixConn); ok {
		if cred, err := peer.Cred(u); err == nil {
			return "uid " + strconv.FormatUint(uint64(cred.Uid), 10)
		}
	}
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return throttle.Party(at.Addr())
}

// enter counts a connection. Where there is no room it returns the one to be closed first, or how long to wait.
func (a *connections) enter(c *connection) (wait time.Duration, oldest *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting < a.mostUnknown && a.open < a.most {
		a.open++
		a.waiting++
		a.unknown[c.party] = append(a.unknown[c.party], c)
		return 0, nil
	}
	oldest = a.oldest()
	if oldest == nil {
		return time.Second, nil
	}
	if wait = a.graceful - time.Since(oldest.accepted); wait > 0 {
		return wait, nil
	}
	return 0, oldest
}

// oldest is the oldest connection of the party that has the most of those without a caller. The connections are locked.
func (a *connections) oldest() *connection {
	var most []*connection
	for _, those := range a.unknown {
		if len(those) > len(most) {
			most = those
		}
	}
	if len(most) == 0 {
		return nil
	}
	return most[0]
}

// leave takes a connection without a caller out. The connections are locked.
func (a *connections) leave(c *connection) {
	those := a.unknown[c.party]
	for i, one := range those {
		if one == c {
			those = append(those[:i:i], those[i+1:]...)
			a.waiting--
			break
		}
	}
	if a.unknown[c.party] = those; len(those) == 0 {
		delete(a.unknown, c.party)
	}
}

// drop takes a connection from its caller. The connections are locked.
func (a *connections) drop(c *connection) {
	if a.of[c.caller]--; a.of[c.caller] == 0 {
		delete(a.of, c.caller)
	}
}

// signal wakes Accept. The connections are locked.
func (a *connections) signal() {
	select {
	case a.freed <- struct{}{}:
	default:
	}
}

// isOf notes whose a connection is. It fails where the caller has too many.
func (c *connection) isOf(caller string) error {
	a := c.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.over || c.caller == caller {
		return nil
	}
	if a.of[caller] >= maxOfOne {
		return tooMany(fmt.Sprintf("you have %d connections to this server", maxOfOne))
	}
	if c.caller == "" {
		a.leave(c)
		a.signal()
	} else {
		a.drop(c)
	}
	c.caller = caller
	a.of[caller]++
	return nil
}

func (c *connection) Close() error {
	a := c.all
	a.mu.Lock()
	if !c.over {
		c.over = true
		a.open--
		if c.caller == "" {
			a.leave(c)
		} else {
			a.drop(c)
		}
		a.signal()
	}
	a.mu.Unlock()
	return c.Conn.Close()
}

func tooMany(what string) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeConnections,
		Message: what + ", which is as many as one may have",
		Hint:    "close some, or share them: one watch can tell about all VMs"}
}

// connKey is where withPeer puts the connection of a request.
type connKey struct{}

// boundedOf is the counted connection below a connection of net/http's; nil: it is not counted.
func boundedOf(conn net.Conn) *connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

// owned counts a request's connection for who calls. Root could stop the server as well.
func owned(ctx context.Context, who farm.Identity) error {
	c, _ := ctx.Value(connKey{}).(*connection)
	if c == nil || who.Root {
		return nil
	}
	if caller := cmp.Or(who.User, who.Host); caller != "" {
		return c.isOf(kindOf(who) + caller)
	}
	return nil
}

// kindOf keeps hosts and users of one name apart.
func kindOf(who farm.Identity) string {
	if who.Host != "" {
		return "host "
	}
	return "user "
}
