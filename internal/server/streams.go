package server

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Bounds of streams. A host opens a connection of its own for each, so they are few and dear.
const (
	mostStreams    = 512 // that one server carries
	mostStreamsOf  = 32  // of one caller
	bringTimeout   = 20 * time.Second
	forgottenAfter = time.Minute // of an order whose server is gone
)

// streams are those that callers of this server have, or wait for.
type streams struct {
	mu      sync.Mutex
	waiting map[string]*bringing // by the order's ID
	open    map[string]int       // by caller
	all     int
}

// bringing is a stream that a host was asked for.
type bringing struct {
	host    string
	brought chan io.ReadWriteCloser // of one place
	refused chan error              // of one place: the host says why there is none
}

func newStreams() *streams { return &streams{waiting: map[string]*bringing{}, open: map[string]int{}} }

// enter counts a stream of a caller.
func (s *streams) enter(caller string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= mostStreams || s.open[caller] >= mostStreamsOf {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeStreams,
			Message: fmt.Sprintf("this server carries %d streams, %d of them yours", s.all, s.open[caller]),
			Hint:    fmt.Sprintf("close one; there may be %d, and %d of one user", mostStreams, mostStreamsOf)}
	}
	s.all++
	s.open[caller]++
	return nil
}

func (s *streams) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.open[caller]--; s.open[caller] == 0 {
		delete(s.open, caller)
	}
}

// expect waits for a stream from a host; forget ends that, and closes what came too late.
func (s *streams) expect(id, host string) (b *bringing, forget func()) {
	b = &bringing{host: host, brought: make(chan io.ReadWriteCloser, 1), refused: make(chan error, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = b
	return b, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[id] == b {
			delete(s.waiting, id)
		}
		select {
		case late := <-b.brought:
			late.Close()
		default:
		}
	}
}

// bring hands a host's end to whoever waits for it.
func (s *streams) bring(host, id string, end io.ReadWriteCloser) error {
	return s.hand(host, id, func(b *bringing) { b.brought <- end })
}

// refuse answers whoever waits with why there is none.
func (s *streams) refuse(host, id string, why error) error {
	return s.hand(host, id, func(b *bringing) { b.refused <- why })
}

// hand gives something to whoever waits for a stream, under the lock: forget must see it.
func (s *streams) hand(host, id string, give func(*bringing)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.waiting[id]
	if b == nil || b.host != host {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoStream,
			Message: "nobody waits here for this stream of this host",
			Hint:    "whoever asked for it went away, or waits no longer"}
	}
	delete(s.waiting, id)
	give(b)
	return nil
}

// Streams are connections to VMs, which their hosts bring.
type Streams struct{ server *Server }

// Open connects to a VM: fleet.StreamConsole, fleet.StreamDisplay, or fleet.StreamTCP with a port. The order is a row
// that the host's wanted list has; the host brings the stream to this server. The caller closes it.
func (ss Streams) Open(ctx context.Context, who farm.Identity, ref, kind string,
	port int) (io.ReadWriteCloser, error) {
	act, err := streamAction(kind, port)
	if err != nil {
		return nil, err
	}
	caller := action.Entry(who, ss.server.now(), act, policy.Target{}, "", "").Who
	if err := ss.server.streams.enter(caller); err != nil {
		return nil, err
	}
	conn, err := ss.order(ctx, who, act, ref,
		store.Stream{ID: api.NewID(), Kind: kind, Port: port, Server: ss.server.url, Created: ss.server.now().UTC()})
	if err != nil {
		ss.server.streams.leave(caller)
		return nil, err
	}
	return &stream{ReadWriteCloser: conn, end: sync.OnceFunc(func() { ss.server.streams.leave(caller) })}, nil
}

func streamAction(kind string, port int) (policy.Action, error) {
	switch {
	case (kind == fleet.StreamConsole || kind == fleet.StreamDisplay) && port == 0:
		return policy.ConsoleVM, nil
	case kind == fleet.StreamTCP && port > 0 && port < 1<<16:
		return policy.ConnectVM, nil
	}
	return "", badVM("no stream is %.20q to port %d; there are %s, %s, and %s with a port", kind, port,
		fleet.StreamConsole, fleet.StreamDisplay, fleet.StreamTCP)
}

func (ss Streams) order(ctx context.Context, who farm.Identity, action policy.Action, ref string,
	order store.Stream) (io.ReadWriteCloser, error) {
	var wait *bringing
	forget := func() {}
	var host string
	_, err := ss.server.change(ctx, who, action, func(c *call) error {
		forget()
		vm, err := c.FindVM(ref)
		if err != nil {
			return err
		}
		view, err := c.show(vm)
		if err != nil {
			return err
		}
		if _, err := judge(vm, view.State, action); err != nil {
			return err
		}
		if order.Kind == fleet.StreamDisplay && !vm.Shape.Display {
			return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNoDisplay, Message: "VM " + vm.Name + " has no display",
				Hint: "use its console, or make one with --display"}
		}
		order.VM, order.Host, host = vm.ID, vm.Host, view.HostName
		wait, forget = ss.server.streams.expect(order.ID, vm.Host)
		if err := c.PutStream(order); err != nil {
			return err
		}
		return c.Did(fmt.Sprintf("%s %d", order.Kind, order.Port))
	})
	defer func() { forget() }()
	if err != nil {
		return nil, err
	}
	defer ss.takeBack(order.ID)
	timeout := time.NewTimer(bringTimeout)
	defer timeout.Stop()
	select {
	case conn := <-wait.brought:
		return conn, nil
	case why := <-wait.refused:
		return nil, why
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout.C:
		return nil, &farm.Error{Kind: farm.Unavailable, Code: CodeNoStream,
			Message: fmt.Sprintf("host %s did not bring the stream in %v", host, bringTimeout),
			Hint:    "try again; `grange host show` shows when the host was last seen"}
	}
}

// takeBack removes an order that was carried out, or that nobody waits for.
func (ss Streams) takeBack(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), bringTimeout)
	defer cancel()
	if _, err := ss.server.store.Update(ctx, func(t *store.Tx) error { return t.DeleteStream(id) }); err != nil &&
		!action.Missing(err) {
		ss.server.log.Warn("the order of a stream stays until it is pruned", "stream", id, "error", err)
	}
}

// Bring hands over a host's end of a stream that Open waits for on this server, and returns when the stream
// is over. The host must be the one that was asked.
func (ss Streams) Bring(host, id string, conn io.ReadWriteCloser) error {
	end := &stream{ReadWriteCloser: conn, over: make(chan struct{})}
	end.end = sync.OnceFunc(func() { close(end.over) })
	if err := ss.server.streams.bring(host, id, end); err != nil {
		return err
	}
	<-end.over
	return nil
}

// Refuse takes a host's word why it brings no stream, so that nobody waits for it.
func (ss Streams) Refuse(host, id string, why error) error {
	return ss.server.streams.refuse(host, id, why)
}

// stream is a connection whose end somebody waits for.
type stream struct {
	io.ReadWriteCloser
	end  func()
	over chan struct{}
}

func (s *stream) Close() error {
	err := s.ReadWriteCloser.Close()
	s.end()
	return err
}
