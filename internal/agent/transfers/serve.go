package transfers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of what other hosts get at a time. Who has no certificate of the fleet gets no further than the handshake.
const (
	givenAtOnce = 4
	givenToOne  = 2
	mostConns   = 256
	mostOfOne   = 64 // connections of one address, which may be that of several hosts
	dialTime    = 5 * time.Second
	headerTime  = 10 * time.Second
	requestTime = 20 * time.Second
	idleTime    = time.Minute
	headerBytes = 16 << 10
)

// serve listens for other hosts, from when this one has joined a fleet.
func (t *Transfers) serve(ctx context.Context) {
	l := t.listen(ctx)
	if l == nil {
		return
	}
	server := &http.Server{Handler: t.giver, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(t.Log.Handler(), slog.LevelDebug)}
	t.mu.Lock()
	t.address = l.Addr().String()
	t.mu.Unlock()
	t.Log.Info("other hosts get images here", "address", t.address)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	secure := tls.NewListener(&boundedListener{Listener: l, of: map[string]int{}}, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.Peers.TLS() }})
	if err := server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
		t.Log.Error("other hosts get no images here any more", "error", err)
	}
	t.mu.Lock()
	t.address = ""
	t.mu.Unlock()
}

// listen returns where other hosts find this one, on the address that leads to the server where the configuration says
// none; nil: nowhere.
func (t *Transfers) listen(ctx context.Context) net.Listener {
	said := ""
	for ; ctx.Err() == nil; sleep(ctx, tryListen) {
		where := t.Config().Listen
		if where == "" {
			return nil
		}
		if _, err := t.Peers.TLS(); err != nil {
			continue // no host of a fleet yet
		}
		l, err := t.open(where)
		if err == nil {
			return l
		}
		if err.Error() != said {
			said = err.Error()
			t.Log.Warn("other hosts get no images here", "reason", err, "try", "see [transfer] listen in agent.toml")
		}
	}
	return nil
}

func (t *Transfers) open(where string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(where)
	if err != nil {
		return nil, err
	}
	if host == "" {
		address, err := t.Peers.Address()
		if err != nil {
			return nil, err
		}
		host = address.String()
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// boundedListener takes some connections, and few of one address. What is beyond is closed at once.
type boundedListener struct {
	net.Listener
	mu  sync.Mutex
	all int
	of  map[string]int
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		party, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if l.enter(party) {
			return &boundedConn{conn, sync.OnceFunc(func() { l.leave(party) })}, nil
		}
		conn.Close()
	}
}

func (l *boundedListener) enter(party string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= mostConns || l.of[party] >= mostOfOne {
		return false
	}
	l.all++
	l.of[party]++
	return true
}

func (l *boundedListener) leave(party string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[party]--; l.of[party] == 0 {
		delete(l.of, party)
	}
}

type boundedConn struct {
	net.Conn
	leave func()
}

func (c *boundedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
