package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/throttle"
)

// acceptors is how many goroutines accept connections of a unix socket, so that one that waits holds no other up.
const acceptors = 4

// endTime is what requests get to end when the server does.
const endTime = 5 * time.Second

// ListenSocket listens on a unix socket. One that nobody answers on any more is replaced.
func ListenSocket(path string, mode fs.FileMode) (net.Listener, error) {
	made := path + ".new" // under another name first, so that it is never there with other permissions
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(made, mode); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	b := bounded(l, 1)
	b.arrivals = throttle.NewArrivals(maxOfOne, time.Now)
	b.all.graceful = 0 // users are known by then: only the busiest one's connections are closed
	return b, nil
}

// ListenTLS listens on a port, for people and hosts.
func ListenTLS(address string, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(bounded(l, 3), TLS(certificate)), nil
}

// TLS is the configuration for people and hosts: certificates of both are asked for, and looked at by package authn,
// which can say in a problem what is wrong with one. HTTP/2 is left out: streams upgrade a connection.
func TLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, GetCertificate: certificate,
		NextProtos: []string{"http/1.1"}}
}

// Serve answers on all the listeners until ctx ends, and closes them.
func (a *API) Serve(ctx context.Context, listeners ...net.Listener) error {
	hs := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    hardHeader,
		ConnContext:       a.withPeer,
	}
	listeners = append(listeners, a.lot)
	errs := make(chan error, acceptors*len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		for range acceptorsOf(l, a.log) {
			serving.Go(func() { errs <- hs.Serve(l) })
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	a.end()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if hs.Shutdown(end) != nil {
		hs.Close()
	}
	a.lot.end()
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// acceptorsOf returns how many goroutines accept connections of a listener, and has it log floods.
func acceptorsOf(l net.Listener, log *slog.Logger) int {
	socket, ok := l.(*boundedListener)
	if !ok || socket.arrivals == nil {
		return 1
	}
	socket.log = log
	return acceptors
}

// patient is the context of a long answer: it ends with the request, and with the server. It costs no goroutine:
// thousands of hosts wait.
func (a *API) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.ending, cancel)
	return ctx, func() { stop(); cancel() }
}
