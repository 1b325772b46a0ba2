package admission

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/throttle"
)

// Limits are those of a user's connections.
type Limits struct {
	Connections func() int            // that a user may have at once
	Free        func(uid uint32) bool // reports whether a user has no limits
}

// Door is a listener that knows who comes.
type Door struct {
	*net.UnixListener
	shares   *Shares
	limits   Limits
	arrivals *throttle.Arrivals
	log      *slog.Logger
}

// Connection is one of a known user.
type Connection struct {
	*net.UnixConn
	Start uint64 // of the process that made it, in clock ticks since boot; 0: it was gone when the connection was taken
	leave func() // once
}

// NewDoor returns a listener that gives each user a share of the connections, and logs who makes too many.
func NewDoor(l *net.UnixListener, shares *Shares, limits Limits, log *slog.Logger) *Door {
	return &Door{l, shares, limits, throttle.NewArrivals(2*limits.Connections(), time.Now), log}
}

// Accept returns the next connection that is served. All others are closed unread: their callers come again, as after a
// restart of the agent, and nothing is spent on an answer.
func (d *Door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.shares.Note(time.Now())
			}
			return nil, err
		}
		if c := d.admit(conn); c != nil {
			return c, nil
		}
		conn.Close()
	}
}

// admit counts a connection for its user. It returns nil where the user has or makes too many, and for a connection
// that its caller has closed. It reads nothing of /proc for those.
func (d *Door) admit(conn *net.UnixConn) *Connection {
	cred, err := peer.Cred(conn)
	if err != nil { // it has gone
		return nil
	}
	if !d.enter(cred.Uid) {
		d.report(cred.Uid)
		return nil
	}
	leave := sync.OnceFunc(func() { d.shares.Leave(cred.Uid) })
	if peer.HungUp(conn) {
		leave()
		return nil
	}
	// now: by the time that the request is here, the number may be another process's
	start, _ := procstat.Started(int(cred.Pid))
	return &Connection{conn, start, leave}
}

// enter counts a connection of a user. It reports whether the user may have one more.
func (d *Door) enter(uid uint32) bool {
	if d.limits.Free(uid) {
		return d.shares.Enter(uid, 0)
	}
	return d.arrivals.Admit(uid) && d.shares.Enter(uid, d.limits.Connections())
}

// report logs from time to time that connections of a user are closed unread.
func (d *Door) report(uid uint32) {
	if n := d.arrivals.Dropped(uid); n > 0 {
		d.log.Warn("connections closed: the user has or makes too many", "uid", uid, "connections", n)
	}
}

// Close ends the connection, and its share.
func (c *Connection) Close() error {
	c.leave()
	return c.UnixConn.Close()
}
