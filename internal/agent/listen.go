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
)

// connKey is where net/http keeps the connection for us; callerOf takes it out at the edge and passes a Caller on.
type connKey struct{}

// acceptors is how many goroutines accept connections of a socket: one that reads about a caller holds no other up.
const acceptors = 4

// listen serves until ctx ends: everybody on one socket, and root on a second one, whose queue nobody else can fill.
func (a *Agent) listen() error {
	c := a.config()
	public, err := listenUnix(c.Socket, c.SocketMode)
	if err != nil {
		return err
	}
	defer os.Remove(c.Socket) // which closing the listener does by the first name only
	limits := admission.Limits{Connections: a.mostConnections,
		Free: func(uid uint32) bool { return Caller{UID: uid}.admin() }, Party: accounts(a).Party}
	doors := []*admission.Door{admission.NewDoor(public, &a.admission, limits, a.log)}
	private := api.PrivateSocket(c.Socket)
	if l, err := listenUnix(private, 0o600); err == nil {
		defer os.Remove(private)
		doors = append(doors, admission.NewDoor(l, &a.admission, limits, a.log))
	} else { // its path may be too long
		a.log.Warn("root has no socket of its own", "socket", private, "error", err)
	}
	a.log.Info("agent serves", "socket", c.Socket)
	if a.ready != nil {
		a.ready()
	}
	return serve(a.ctx, routes{a}.handler(), doors)
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

// serve answers on all doors until ctx ends.
func serve(ctx context.Context, handler http.Handler, doors []*admission.Door) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       10 * time.Second,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	defer context.AfterFunc(ctx, func() { server.Close() })() // jobs know by then why
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

func (a *Agent) mostConnections() int {
	return max(admission.LeastConnections, admission.ConnectionsOfJob*a.mostJobs())
}
