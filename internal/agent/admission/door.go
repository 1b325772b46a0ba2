package admission

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/subid"
	"github.com/grange-project/grange/internal/throttle"
)

// Limits are those of a user's connections.
type Limits struct {
	Connections func() int            // that a user may have at once
	Free        func(uid uint32) bool // reports whether a user has no limits
	// Party returns the user that a connection counts for, by the user ID of its process and the owner of its user
	// namespace, which is 0 where there is none, or it is not read yet. nil: the user ID itself.
	Party func(uid, owner uint32) uint32
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
	Start  uint64 // of the process that made it, in clock ticks since boot; 0: the kernel does not show it
	Owner  uint32 // of the process's user namespace; 0: it is that of the agent, or root's
	Hidden error  // why Owner is not known; nil: it is

	serving atomic.Int32 // requests
	leave   func()       // once
}

// NewDoor returns a listener that gives each user a share of the connections, and logs who makes too many.
func NewDoor(l *net.UnixListener, shares *Shares, limits Limits, log *slog.Logger) *Door {
	if limits.Party == nil {
		limits.Party = func(uid, _ uint32) uint32 { return uid }
	}
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
// that its caller has closed, or whose process has gone. It reads nothing of /proc for the first two.
func (d *Door) admit(conn *net.UnixConn) *Connection {
	cred, err := peer.Cred(conn)
	if err != nil { // it has gone
		return nil
	}
	party := d.limits.Party(cred.Uid, 0)
	if !d.enter(party) {
		d.report(party)
		return nil
	}
	c := &Connection{UnixConn: conn}
	// now: by the time that the request is here, the number may be another process's
	if peer.HungUp(conn) || !c.identify(int(cred.Pid)) {
		d.shares.Leave(party)
		return nil
	}
	if owner := d.limits.Party(cred.Uid, c.Owner); owner != party {
		d.shares.Leave(party)
		if party = owner; !d.enter(party) {
			d.report(party)
			return nil
		}
	}
	c.leave = sync.OnceFunc(func() { d.shares.crowd.leave(c, party); d.shares.Leave(party) })
	if !d.limits.Free(party) && !d.makeRoom(c, party) {
		c.leave()
		return nil
	}
	return c
}

// makeRoom counts a connection among those of all users. It reports whether there is room, or was made.
func (d *Door) makeRoom(c *Connection, party uint32) bool {
	closes, ok := d.shares.crowd.enter(c, party)
	if !ok {
		d.report(party)
	}
	if closes != nil {
		closes.Close()
	}
	return ok
}

// Serves notes that a request of the connection is being served, until done is called: the connection is not the first
// to make room for others.
func (c *Connection) Serves() (done func()) {
	c.serving.Add(1)
	return func() { c.serving.Add(-1) }
}

// enter counts a connection of a user. It reports whether the user may have one more.
func (d *Door) enter(party uint32) bool {
	if d.limits.Free(party) {
		return d.shares.Enter(party, 0)
	}
	return d.arrivals.Admit(party) && d.shares.Enter(party, d.limits.Connections())
}

// identify reads who made the connection from one directory below /proc, which stays that of one process. It reports
// whether the process is still there; of one that the kernel does not show there is nothing to read.
func (c *Connection) identify(pid int) bool {
	if pid <= 0 {
		return true
	}
	process, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	defer process.Close()
	if c.Start, err = procstat.StartedAt(process); err != nil {
		return false
	}
	c.Owner, c.Hidden = subid.NamespaceOwner(process)
	return true
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
