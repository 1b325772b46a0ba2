package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// callTimeout bounds one call to the daemon. The longest, starting a machine with many huge pages, takes seconds.
const callTimeout = 60 * time.Second

// session is one connection to the daemon. It ends once, and is never mended: the next call makes a new one.
type session struct {
	*rpc.Libvirt
	conn  net.Conn
	ended chan struct{} // closed when the connection is lost
	host  host
	owner [2]int
}

// watchedConn tells when the peer is gone. go-libvirt's own signal misses a loss in the middle of connecting.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *watchedConn) end() { c.once.Do(func() { close(c.ended) }) }

func (c *watchedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

type dialer struct{ conn net.Conn }

func (d dialer) Dial() (net.Conn, error) { return d.conn, nil }

// away is the error while the daemon does not answer.
func (l *Libvirt) away(err error) error {
	return &farm.Error{
		Kind: farm.Unavailable, Code: hyper.CodeAway, Err: err,
		Message: "libvirt does not answer on " + l.cfg.Socket,
		Hint:    "machines live on; see that libvirtd or virtqemud runs, the agent connects again by itself",
	}
}

// session returns the live connection, or makes one. A unix socket that nobody serves refuses at once, so callers never wait
// for a back-off.
func (l *Libvirt) session(ctx context.Context) (*session, error) {
	select {
	case l.connecting <- struct{}{}:
		defer func() { <-l.connecting }()
	case <-ctx.Done():
		return nil, l.away(context.Cause(ctx))
	}
	if s := l.current; s != nil && !isClosed(s.ended) {
		return s, nil
	}
	l.current = nil
	if isClosed(l.closing) {
		return nil, l.away(net.ErrClosed)
	}
	s, err := l.connect(ctx)
	if err != nil {
		return nil, l.away(err)
	}
	l.current = s
	return s, nil
}

func (l *Libvirt) connect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", l.cfg.Socket)
	if err != nil {
		return nil, err
	}
	conn := &watchedConn{Conn: raw, ended: make(chan struct{})}
	s := &session{Libvirt: rpc.NewWithDialer(dialer{conn}), conn: conn, ended: conn.ended}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := s.open(l); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *session) open(l *Libvirt) error {
	if err := s.ConnectToURI(rpc.QEMUSystem); err != nil {
		return fmt.Errorf("open qemu:///system: %w", err)
	}
	if err := l.checkPidDir(); err != nil {
		return err
	}
	caps, err := s.ConnectGetCapabilities()
	if err != nil {
		return fmt.Errorf("read libvirt's capabilities: %w", err)
	}
	if s.host, s.owner, err = l.readHost(caps); err != nil {
		return err
	}
	version, err := s.ConnectGetLibVersion()
	if err != nil {
		return fmt.Errorf("read libvirt's version: %w", err)
	}
	s.host.hints = version >= hintsAnyCPU
	if err := s.clearEvents(); err != nil {
		return fmt.Errorf("subscribe to libvirt's events: %w", err)
	}
	// One subscription for the connection's whole life. Ending one earlier can deadlock go-libvirt: an event that comes
	// between the end of its queue and the deregistration blocks the reader for ever.
	events, err := s.LifecycleEvents(context.Background())
	if err != nil {
		return fmt.Errorf("subscribe to libvirt's events: %w", err)
	}
	l.running.Add(1)
	go func() {
		defer l.running.Done()
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				l.published(e)
			case <-s.ended:
				// events closes too, except when the connection was lost while we subscribed.
				return
			}
		}
	}()
	return nil
}

// clearEvents has libvirt forget events that nobody was told of. One that it queues at the moment when its last listener leaves, as an agent that is
// restarted while a machine ends, has no timer to be told by; libvirt sets the timer for the first event of a queue only, so that later listeners are
// told nothing at all (virObjectEventStateQueueRemote, libvirt 9.0). When the last listener leaves again, the queue is emptied.
func (s *session) clearEvents() error {
	id, err := s.ConnectDomainEventCallbackRegisterAny(int32(rpc.DomainEventIDLifecycle), nil)
	if err != nil {
		return err
	}
	return s.ConnectDomainEventCallbackDeregisterAny(id)
}

// call runs one request, which cannot be cancelled, so that ctx and the time limit hold. What f returns late is dropped.
func call[T any](ctx context.Context, l *Libvirt, f func(*session) (T, error)) (T, error) {
	var zero T
	s, err := l.session(ctx)
	if err != nil {
		return zero, err
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(s)
		done <- result{v, err}
	}()
	limit := time.NewTimer(callTimeout)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.v, l.wrap(s, r.err)
	case <-ctx.Done():
		return zero, l.away(context.Cause(ctx))
	case <-limit.C:
		s.conn.Close() // it hangs: the next call starts afresh
		return zero, l.away(fmt.Errorf("no answer within %s", callTimeout))
	}
}

// wrap turns an error of a call into one of ours.
func (l *Libvirt) wrap(s *session, err error) error {
	if err == nil {
		return nil
	}
	var e rpc.Error
	if !errors.As(err, &e) {
		// Not an answer of libvirt, so the connection broke.
		s.conn.Close()
		return l.away(err)
	}
	out := &farm.Error{Kind: farm.Internal, Code: hyper.CodeRefused, Message: "libvirt refused: " + e.Message}
	switch rpc.ErrorNumber(e.Code) {
	case rpc.ErrNoDomain:
		out.Kind, out.Code = farm.NotFound, hyper.CodeNoMachine
	case rpc.ErrDomExist:
		out.Kind, out.Code = farm.Conflict, hyper.CodeExists
	case rpc.ErrOperationInvalid, rpc.ErrOperationFailed: // the latter of a domain that is being removed at this moment
		out.Kind = farm.Conflict
	case rpc.ErrXMLError, rpc.ErrXMLDetail, rpc.ErrConfigUnsupported, rpc.ErrInvalidArg, rpc.ErrXMLInvalidSchema:
		out.Kind = farm.Invalid
	case rpc.ErrNoMemory:
		out.Kind = farm.NoCapacity
	case rpc.ErrRPC: // the daemon is going down
		out.Kind, out.Code = farm.Unavailable, hyper.CodeAway
	}
	return out
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
