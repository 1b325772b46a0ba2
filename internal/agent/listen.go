package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/throttle"
)

// connKey is where net/http keeps the connection for us; callerOf takes it out at the edge and passes a Caller on.
type connKey struct{}

// acceptors is how many goroutines accept connections of a socket: one that reads about a caller holds no other up.
const acceptors = 4

// door is a listener that knows who comes.
type door struct {
	*net.UnixListener
	agent    *Agent
	arrivals *throttle.Arrivals
	free     func(uid uint32) bool // of the limits
}

// listen serves until ctx ends: everybody on one socket, and root on a second one, whose queue nobody else can fill.
func (a *Agent) listen() error {
	c := a.config()
	public, err := listenUnix(c.Socket, c.SocketMode)
	if err != nil {
		return err
	}
	defer os.Remove(c.Socket) // which closing the listener does by the first name only
	doors := []door{a.newDoor(public)}
	private := api.PrivateSocket(c.Socket)
	if l, err := listenUnix(private, 0o600); err == nil {
		defer os.Remove(private)
		doors = append(doors, a.newDoor(l))
	} else { // its path may be too long
		a.log.Warn("root has no socket of its own", "socket", private, "error", err)
	}
	a.log.Info("agent serves", "socket", c.Socket)
	if a.ready != nil {
		a.ready()
	}
	return a.serve(doors)
}

// listenUnix listens on a unix socket. It is made under another name first: a caller that finds no socket at all soon
// gives up, and one that finds the old one waits.
func listenUnix(path string, mode os.FileMode) (*net.UnixListener, error) {
	made := path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err = os.Chmod(made, mode); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// newDoor returns the door of a listener. Root and the account of the agent have no limits.
func (a *Agent) newDoor(l *net.UnixListener) door {
	return door{l, a, throttle.NewArrivals(2*a.mostConnections(), time.Now),
		func(uid uint32) bool { return Caller{UID: uid}.admin() }}
}

// serve answers on all doors until the agent ends.
func (a *Agent) serve(doors []door) error {
	server := &http.Server{
		Handler:           routes{a}.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       10 * time.Second,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	defer context.AfterFunc(a.ctx, func() { server.Close() })() // jobs know by then why
	ended := make(chan error, acceptors*len(doors))
	var serving sync.WaitGroup
	for _, d := range doors {
		for range acceptors {
			serving.Go(func() { ended <- server.Serve(d) })
		}
	}
	err := <-ended
	server.Close()
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Accept returns the next connection that is served. All others are closed unread: their callers come again, as after a
// restart of the agent, and nothing is spent on an answer.
func (d door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.agent.admission.Note(time.Now())
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
func (d door) admit(conn *net.UnixConn) *connection {
	cred, err := peer.Cred(conn)
	if err != nil { // it has gone
		return nil
	}
	if !d.enter(cred.Uid) {
		d.report(cred.Uid)
		return nil
	}
	leave := sync.OnceFunc(func() { d.agent.admission.Leave(cred.Uid) })
	if peer.HungUp(conn) {
		leave()
		return nil
	}
	// now: by the time that the request is here, the number may be another process's
	start, _ := procstat.Started(int(cred.Pid))
	return &connection{conn, start, leave}
}

// enter counts a connection of a user. It reports whether the user may have one more.
func (d door) enter(uid uint32) bool {
	if d.free(uid) {
		return d.agent.admission.Enter(uid, 0)
	}
	return d.arrivals.Admit(uid) && d.agent.admission.Enter(uid, d.agent.mostConnections())
}

// report logs from time to time that connections of a user are closed unread.
func (d door) report(uid uint32) {
	if n := d.arrivals.Dropped(uid); n > 0 {
		d.agent.log.Warn("connections closed: the user has or makes too many", "uid", uid, "connections", n)
	}
}

func (a *Agent) mostConnections() int {
	return max(admission.LeastConnections, admission.ConnectionsOfJob*a.mostJobs())
}
