package cloud

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
)

// Peers are the other hosts of the fleet, as this host knows them by their certificates.
type Peers interface {
	// TLS is this host's side of a connection to another one. A handshake succeeds with hosts of the fleet only.
	TLS() (*tls.Config, error)
	// Host is the ID of the host at the other end.
	Host(tls.ConnectionState) (string, error)
	// Address is where this host reaches its server from, and others may reach it.
	Address() (netip.Addr, error)
}

// Bounds of connections between hosts.
const (
	moveDial      = 20 * time.Second
	moveAnswer    = 4 * time.Minute // of one step at the other host: libvirt has a minute, and there may be two
	maxMoveLine   = 4 << 20
	maxMovesConns = 64 // at once
)

// Kinds of connection of a move.
const (
	moveControl = "control" // the steps
	moveVerdict = "verdict" // the source's last word
	moveMemory  = "memory"  // bytes of the two hypervisors
	moveDisks   = "disks"
	moveSeed    = "seed" // the disk of a full image that is made for it
)

// moveLine is one message between the two hosts. The first on a connection says what it is for.
type moveLine struct {
	Kind, Move, VM string      `json:",omitzero"`
	Size           int64       `json:",omitzero"` // of the seed that follows
	Body           []byte      `json:",omitzero"` // a description, or what libvirt calls a cookie
	Cookie         []byte      `json:",omitzero"`
	Word           string      `json:",omitzero"`
	CPUTime        float64     `json:",omitzero"` // seconds that the VM has used so far
	Error          *farm.Error `json:",omitzero"`
}

// Words of both sides.
const (
	wordOK    = "ok"
	wordWhole = "whole" // the target: all is here
	wordGo    = "go"    // the source: it has gone from here, let it run
	wordCome  = "come"  // the target: it runs
	wordAbort = "abort" // the source: it stays
)

// moveConn is one connection: lines, and then, on some kinds, bytes.
type moveConn struct {
	*tls.Conn
	r    *bufio.Reader
	open moveLine // the first line
}

func newMoveConn(c *tls.Conn) *moveConn {
	return &moveConn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

func (c *moveConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *moveConn) send(l moveLine) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	c.SetWriteDeadline(time.Now().Add(moveDial))
	_, err = c.Write(append(text, '\n'))
	c.SetWriteDeadline(time.Time{})
	return err
}

// receive reads a line within a time; 0: whenever it comes. The other side's error is the error.
func (c *moveConn) receive(limit time.Duration) (l moveLine, err error) {
	if limit > 0 {
		c.SetReadDeadline(time.Now().Add(limit))
		defer c.SetReadDeadline(time.Time{})
	}
	var text []byte
	for {
		part, err := c.r.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > maxMoveLine {
			return l, fmt.Errorf("a line of more than %d bytes", maxMoveLine)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.Error != nil {
		e := *l.Error
		e.Message, e.Hint, e.Err = farm.Clean(e.Message, machine.MaxReason), farm.Clean(e.Hint, machine.MaxReason), nil
		return l, &e
	}
	return l, nil
}

// ask sends a line and reads the answer.
func (c *moveConn) ask(l moveLine) (moveLine, error) {
	if err := c.send(l); err != nil {
		return moveLine{}, err
	}
	return c.receive(moveAnswer)
}

// refuse answers with an error.
func (c *moveConn) refuse(err error) {
	own := new(farm.Error)
	if !errors.As(err, &own) {
		own = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal}
	}
	// who does not read it sees the end
	_ = c.send(moveLine{Error: &farm.Error{Kind: own.Kind, Code: own.Code, Message: err.Error(), Hint: own.Hint}})
}

// dialMove connects to the other host of a move, which must be the one that the server named.
func (h *Host) dialMove(ctx context.Context, o moveOut, open moveLine) (*moveConn, error) {
	ctx, cancel := context.WithTimeout(ctx, moveDial)
	defer cancel()
	away := func(err error) error {
		return badMove(err, fmt.Sprintf("host %s is not reached at %s", o.Name, o.Address),
			"see that the port of its agent's [move] listen is open between the hosts, and that the address is the "+
				"one by which others reach it")
	}
	if h.Peers == nil {
		return nil, away(errors.New("this host has not joined a fleet"))
	}
	config, err := h.Peers.TLS()
	if err != nil {
		return nil, away(err)
	}
	raw, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, away(err)
	}
	c := newMoveConn(raw.(*tls.Conn))
	host, err := h.Peers.Host(c.ConnectionState())
	if err == nil && host != o.Host {
		err = fmt.Errorf("who answers is host %s, and not %s", host, o.Host)
	}
	if err == nil {
		_, err = c.ask(open)
	}
	if err != nil {
		c.Close()
		if own := new(farm.Error); errors.As(err, &own) {
			return nil, err
		}
		return nil, away(err)
	}
	return c, nil
}

// moveListener takes connections of sources while any VM is on its way here; there is no open port otherwise.
type moveListener struct {
	host *Host

	mu       sync.Mutex
	users    int
	listener net.Listener
	address  string
}

// listen returns where sources find this host, until release.
func (m *moveListener) listen() (address string, release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == 0 {
		if m.listener, m.address, err = m.open(); err != nil {
			return "", nil, badMove(err, "this host takes no VMs from other hosts: "+err.Error(),
				"see [move] in the agent's configuration")
		}
		go m.accept(m.listener)
	}
	m.users++
	return m.address, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.users--; m.users == 0 {
			m.listener.Close()
		}
	}), nil
}

// open listens where the configuration says, on the address that leads to the server where that says none.
func (m *moveListener) open() (net.Listener, string, error) {
	where := m.host.config().Move.Listen
	if m.host.Peers == nil {
		return nil, "", errors.New("it has not joined a fleet")
	}
	if where == "" {
		return nil, "", errors.New("[move] listen is \"none\"")
	}
	host, port, err := net.SplitHostPort(where)
	if err != nil {
		return nil, "", err
	}
	if host == "" {
		addr, err := m.host.Peers.Address()
		if err != nil {
			return nil, "", err
		}
		host = addr.String()
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, "", err
	}
	return l, l.Addr().String(), nil
}

func (m *moveListener) accept(l net.Listener) {
	free := make(chan struct{}, maxMovesConns)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			m.host.log.Error("connection of another host", "error", err)
			time.Sleep(time.Second)
			continue
		}
		select {
		case free <- struct{}{}:
			go func() {
				defer func() { <-free }()
				m.take(conn)
			}()
		default:
			conn.Close()
		}
	}
}

// take finds out who connects, and what for.
func (m *moveListener) take(raw net.Conn) {
	config, err := m.host.Peers.TLS()
	if err != nil {
		raw.Close()
		return
	}
	ctx, cancel := context.WithTimeout(m.host.ctx, moveDial)
	defer cancel()
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		m.host.log.Warn("another host is refused", "from", raw.RemoteAddr().String(), "error", err)
		raw.Close()
		return
	}
	c := newMoveConn(conn)
	host, err := m.host.Peers.Host(conn.ConnectionState())
	if err == nil {
		c.open, err = c.receive(moveDial)
	}
	if err != nil {
		c.Close()
		return
	}
	v := m.host.ByID(c.open.VM)
	if v == nil || !v.arrival.expects(host, c.open.Move) {
		c.refuse(&farm.Error{Kind: farm.Denied, Code: farm.CodeMoveFailed,
			Message: "nothing is expected here from that host", Hint: "the move may have been cancelled"})
		c.Close()
		return
	}
	switch c.open.Kind {
	case moveControl, moveVerdict:
		v.arrival.takeControl(c)
	case moveMemory, moveDisks:
		v.arrival.takeBytes(c)
	case moveSeed:
		v.arrival.takeSeed(c)
	default:
		c.Close()
	}
}

// carry takes bytes both ways until both have ended, or one side fails.
func carry(a, b halfConn) {
	var both sync.WaitGroup
	one := func(to, from halfConn) {
		_, err := io.Copy(to, from)
		if err = errors.Join(err, to.CloseWrite()); err != nil {
			a.Close()
			b.Close()
		}
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
	a.Close()
	b.Close()
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}
