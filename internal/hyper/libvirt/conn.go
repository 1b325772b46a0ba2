package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/topology"
)

// Limits of one request to the daemon. None is for ever: a daemon that is stopped accepts connections and answers
// nothing.
const (
	callTimeout = 60 * time.Second // the longest, starting a machine with many huge pages, takes seconds
	openTimeout = 90 * time.Second // of connecting, which is three requests
	hostTimeout = 3 * time.Minute  // of reading what the host can do, for which libvirt may have to probe QEMU
)

// session is one connection to the daemon. It ends once, and is never mended: the next call makes a new one.
type session struct {
	*rpc.Libvirt
	conn  net.Conn
	ended chan struct{} // closed when the connection is lost

	mu    sync.Mutex
	calls int // that wait for their answers
	// closed when a call went unanswered, or what is known of the host is too old: no new call is made on this
	// connection
	retired chan struct{}

	read  chan struct{} // closed when the next four are known
	asked time.Time     // when libvirt was asked for them
	host  host
	owner [2]int
	wrong error
}

// watchedConn reports when the peer is gone. go-libvirt's own signal misses a loss in the middle of connecting.
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
func (d *daemon) away(err error) error {
	return &farm.Error{
		Kind: farm.Unavailable, Code: hyper.CodeAway, Err: err,
		Message: "libvirt does not answer on " + d.socket,
		Hint:    "machines live on; see that libvirtd or virtqemud runs, the agent connects again by itself",
	}
}

// daemon is libvirt's, and the connection to it.
type daemon struct {
	socket      string
	pids        pidFiles
	accelerator *verdicts
	events      *events
	closing     chan struct{}
	running     sync.WaitGroup
	health      health

	mu      sync.Mutex
	current *session // nil: there is none
	dialing *dialing // nil: nobody connects
}

// dialing is one attempt to connect, of all who wait for it.
type dialing struct {
	done chan struct{}
	s    *session
	err  error
}

// session returns the live connection, or makes one. A unix socket that nobody serves refuses at once, so callers never
// wait for a back-off; where the daemon accepts and does not answer they wait as long as ctx allows, or the attempt
// lasts.
func (d *daemon) session(ctx context.Context) (*session, error) {
	d.mu.Lock()
	if s := d.current; s != nil && !isClosed(s.ended) && !isClosed(s.retired) {
		d.mu.Unlock()
		return s, nil
	}
	if isClosed(d.closing) {
		d.mu.Unlock()
		return nil, d.away(net.ErrClosed)
	}
	a := d.dialing
	if a == nil {
		a = &dialing{done: make(chan struct{})}
		d.dialing = a
		d.running.Go(func() { d.dial(a) })
	}
	d.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, d.away(context.Cause(ctx))
	}
	if a.err != nil {
		return nil, d.away(a.err)
	}
	return a.s, nil
}

// dial makes the connection that the next calls use.
func (d *daemon) dial(a *dialing) {
	a.s, a.err = d.connect()
	if a.err == nil {
		if a.err = a.s.subscribe(d); a.err != nil {
			a.s.conn.Close()
		}
	}
	d.mu.Lock()
	d.dialing = nil
	if a.err == nil {
		d.current = a.s
	}
	d.mu.Unlock()
	d.health.connected(a.err)
	close(a.done)
	if a.err == nil {
		d.running.Go(func() { d.readHost(a.s) })
	}
}

// start runs f until the connection is closed for good, unless it is already: close waits for it.
func (d *daemon) start(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !isClosed(d.closing) {
		d.running.Go(f)
	}
}

// close has everything that uses the daemon end.
func (d *daemon) close() {
	d.mu.Lock()
	if !isClosed(d.closing) {
		close(d.closing)
	}
	s := d.current
	d.mu.Unlock()
	if s != nil {
		s.conn.Close()
	}
}

// connect opens a connection of its own.
func (d *daemon) connect() (*session, error) {
	unix := net.Dialer{Timeout: openTimeout}
	raw, err := unix.Dial("unix", d.socket)
	if err != nil {
		return nil, err
	}
	conn := &watchedConn{Conn: raw, ended: make(chan struct{})}
	s := &session{Libvirt: rpc.NewWithDialer(dialer{conn}), conn: conn, ended: conn.ended, retired: make(chan struct{}),
		read: make(chan struct{})}
	_, err = within(d, s, openTimeout, "open qemu:///system",
		func() (struct{}, error) { return struct{}{}, s.ConnectToURI(rpc.QEMUSystem) })
	if err == nil {
		err = d.pids.check(func() (int, error) { return d.qemuUser(s) })
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// qemuUser asks libvirt which user it gives QEMU.
func (d *daemon) qemuUser(s *session) (int, error) {
	caps, err := within(d, s, hostTimeout, "read libvirt's capabilities", s.ConnectGetCapabilities)
	if err != nil {
		return 0, err
	}
	_, owner, err := hostOf(caps)
	return owner[0], err
}

// within runs one request of whoever owns the connection. Without an answer the connection is closed.
func within[T any](d *daemon, s *session, limit time.Duration, what string, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case r := <-done:
		if r.err != nil {
			r.err = fmt.Errorf("%s: %w", what, r.err)
		}
		return r.v, r.err
	case <-s.ended:
		err = net.ErrClosed
	case <-timer.C:
		err = fmt.Errorf("no answer within %s", limit)
	case <-d.closing:
		err = net.ErrClosed
	}
	s.conn.Close()
	var zero T
	return zero, fmt.Errorf("%s: %w", what, err)
}

// subscribe has events of the connection published.
func (s *session) subscribe(d *daemon) error {
	// One subscription for the connection's whole life. Ending one earlier can deadlock go-libvirt: an event that comes
	// between the end of its queue and the deregistration blocks the reader for ever.
	type channels struct {
		lifecycle         <-chan rpc.DomainEventLifecycleMsg
		watchdog, reboots <-chan any
	}
	c, err := within(d, s, openTimeout, "subscribe to libvirt's events", func() (c channels, err error) {
		if err = s.clearEvents(); err == nil {
			c.lifecycle, err = s.LifecycleEvents(context.Background())
		}
		if err == nil {
			c.watchdog, err = s.SubscribeEvents(context.Background(), rpc.DomainEventIDWatchdog, nil)
		}
		if err == nil {
			c.reboots, err = s.SubscribeEvents(context.Background(), rpc.DomainEventIDReboot, nil)
		}
		return c, err
	})
	if err != nil {
		return err
	}
	read(d, s, c.lifecycle)
	read(d, s, c.watchdog)
	read(d, s, c.reboots)
	return nil
}

// read has the events of a channel published until it or the connection ends.
func read[T any](d *daemon, s *session, events <-chan T) {
	d.running.Go(func() {
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				d.events.published(e)
			case <-s.ended:
				// events closes too, except when the connection was lost while we subscribed.
				return
			}
		}
	})
}

// readHost reads what domains depend on. It takes long where libvirt probes QEMU, and calls that need none of it do not
// wait.
func (d *daemon) readHost(s *session) {
	began := time.Now()
	s.asked = began
	version, err := within(d, s, hostTimeout, "read libvirt's version", s.ConnectGetLibVersion)
	var caps string
	if err == nil {
		began = time.Now()
		caps, err = within(d, s, hostTimeout, "read libvirt's capabilities", s.ConnectGetCapabilities)
	}
	if err == nil {
		s.host, s.owner, err = hostOf(caps)
		s.host.hints, s.host.lists = version >= hintsAnyCPU, version >= listsPerDomain
		s.host.hardware, _ = topology.Read(os.DirFS("/")) // without it guests are told less, and nothing else is lost
	}
	if s.wrong = err; err == nil {
		d.accelerator.sees(s)
	}
	close(s.read)
	if err != nil {
		s.conn.Close() // the next connection tries again
		return
	}
	d.measure(s, time.Since(began))
}

// mostFirst is how often the host is read before a connection that breaks meanwhile is an error.
const mostFirst = 3

// ready returns a connection whose host is known. A libvirtd that just came up, by socket activation for one, may let
// go of a client while it probes QEMU: nobody needs to hear of that as long as the next connection does better.
func (d *daemon) ready(ctx context.Context) (*session, error) {
	for attempt := 1; ; attempt++ {
		s, err := d.session(ctx)
		if err != nil {
			return nil, err
		}
		err = d.awaitHost(ctx, s)
		stale := err == nil && isClosed(s.retired) // what it says of the host is too old
		if err == nil && !stale || ctx.Err() != nil || attempt == mostFirst || err != nil && !lost(s.wrong) {
			return s, err
		}
		if !stale {
			s.conn.Close() // or it would be the next one, too, for a moment
		}
	}
}

// lost reports whether an error is a connection's that broke, and not an answer of libvirt's.
func lost(err error) bool {
	var answer rpc.Error
	return err != nil && !errors.As(err, &answer) &&
		(errors.Is(err, net.ErrClosed) || errors.Is(err, rpc.ErrInterrupted))
}

// awaitHost waits for what readHost reads.
func (d *daemon) awaitHost(ctx context.Context, s *session) error {
	select {
	case <-s.read:
	case <-ctx.Done():
		return d.away(context.Cause(ctx))
	}
	if s.wrong != nil {
		return d.away(s.wrong)
	}
	return nil
}

// enter counts a call; leave counts it off. The last one closes a connection that is retired.
func (s *session) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if s.calls == 0 && isClosed(s.retired) {
		s.conn.Close()
	}
}

// retire has the next call make a new connection. Those that wait on this one are left their time; the last of them
// closes it.
func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.retired) {
		close(s.retired)
	}
	if s.calls == 0 {
		s.conn.Close()
	}
}

// clearEvents has libvirt forget events that nobody was told of. One that it queues at the moment when its last
// listener leaves, as an agent that is restarted while a machine ends, has no timer to be told by; libvirt sets the
// timer for the first event of a queue only, so that later listeners are told nothing at all
// (virObjectEventStateQueueRemote, libvirt 9.0). When the last listener leaves again, the queue is emptied.
func (s *session) clearEvents() error {
	id, err := s.ConnectDomainEventCallbackRegisterAny(int32(rpc.DomainEventIDLifecycle), nil)
	if err != nil {
		return err
	}
	return s.ConnectDomainEventCallbackDeregisterAny(id)
}

// call runs one request, which cannot be cancelled, so that ctx and the time limit hold. What f returns late is
// dropped.
func call[T any](ctx context.Context, d *daemon, f func(*session) (T, error)) (T, error) {
	var zero T
	s, err := d.session(ctx)
	if err != nil {
		return zero, err
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	s.enter()
	defer s.leave()
	go func() {
		v, err := f(s)
		done <- result{v, err}
	}()
	limit := time.NewTimer(callTimeout)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.v, d.wrap(s, r.err)
	case <-ctx.Done():
		return zero, d.away(context.Cause(ctx))
	case <-s.ended: // go-libvirt may miss it
		return zero, d.away(net.ErrClosed)
	case <-limit.C:
		s.retire()
		err := d.away(fmt.Errorf("no answer within %s", callTimeout))
		d.health.connected(err)
		return zero, err
	}
}

// wrap turns an error of a call into one of ours.
func (d *daemon) wrap(s *session, err error) error {
	if err == nil {
		return nil
	}
	var e rpc.Error
	if !errors.As(err, &e) {
		// Not an answer of libvirt, so the connection broke.
		s.conn.Close()
		return d.away(err)
	}
	if refused := cpuRefused(e.Message); refused != nil {
		return refused
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
