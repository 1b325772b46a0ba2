package libvirttest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Proxy stands between an agent and its libvirtd, and does what a libvirtd in trouble does. It begins as a wire.
type Proxy struct {
	path, daemon string

	mu       sync.Mutex
	listener net.Listener // nil: it refuses
	conns    map[net.Conn]bool
	flows    chan struct{} // closed: answers pass
	delay    time.Duration
	stuck    time.Duration // 0: destroys pass
	closed   bool
}

// NewProxy listens on path and passes everything on to the daemon's socket.
func NewProxy(path, daemon string) (*Proxy, error) {
	p := &Proxy{path: path, daemon: daemon, conns: map[net.Conn]bool{}, flows: make(chan struct{})}
	close(p.flows)
	return p, p.listen()
}

func (p *Proxy) listen() error {
	if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		return err
	}
	p.listener = l
	go p.accept(l)
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.serve(c)
	}
}

// Stall lets no answer pass, as a daemon that is stopped: it accepts and never answers. What was asked meanwhile is
// answered when it flows again.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
		p.flows = make(chan struct{})
	default:
	}
}

// Flow ends Stall, Delay, Refuse and Stick.
func (p *Proxy) Flow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
	default:
		close(p.flows)
	}
	p.delay, p.stuck = 0, 0
	if p.listener == nil && !p.closed {
		return p.listen()
	}
	return nil
}

// Delay has each answer take so much longer.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stick has each attempt to destroy a domain fail after a time, as libvirt's own do after 30 seconds when the domain's
// last job is never over.
func (p *Proxy) Stick(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = after
}

// Refuse cuts all connections, and takes no new ones.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
}

// Close ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Flow()
	p.Refuse()
}

func (p *Proxy) hold(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// serve passes the messages of one client on.
func (p *Proxy) serve(client net.Conn) {
	p.hold(client)
	defer p.drop(client)
	p.awaitFlow()
	daemon, err := net.Dial("unix", p.daemon)
	if err != nil {
		return
	}
	p.hold(daemon)
	defer p.drop(daemon)
	answers := &answers{to: client}
	go func() {
		defer client.Close()
		for {
			m, err := readMessage(daemon)
			if err != nil {
				return
			}
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			if delay > 0 {
				time.AfterFunc(delay, func() { answers.write(m) })
				continue
			}
			p.awaitFlow()
			answers.write(m)
		}
	}()
	for {
		m, err := readMessage(client)
		if err != nil {
			return
		}
		p.mu.Lock()
		stuck := p.stuck
		p.mu.Unlock()
		if stuck > 0 && m.destroys() {
			time.AfterFunc(stuck, func() { answers.write(m.refusal()) })
			continue
		}
		if _, err := daemon.Write(m); err != nil {
			return
		}
	}
}

func (p *Proxy) awaitFlow() {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	<-flows
}

type answers struct {
	mu sync.Mutex
	to net.Conn
}

func (a *answers) write(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to.Write(m)
}

// message is one message of libvirt's protocol: its length, then program, version, procedure, type, serial and status,
// then the rest, all in XDR.
type message []byte

const (
	headSize             = 28
	procDestroy          = 12  // REMOTE_PROC_DOMAIN_DESTROY
	procDestroyFlags     = 234 // REMOTE_PROC_DOMAIN_DESTROY_FLAGS
	typeReply, withError = 1, 1
	errOperationTimeout  = 68
	domainQEMU, levelErr = 10, 2
	largest              = 64 << 20
	offProcedure, offEnd = 12, headSize
	offType, offStatus   = 16, 24
)

func readMessage(from io.Reader) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < headSize || n > largest {
		return nil, errors.New("not a message of libvirt's")
	}
	m := make(message, n)
	copy(m, size[:])
	_, err := io.ReadFull(from, m[4:])
	return m, err
}

func (m message) destroys() bool {
	procedure := binary.BigEndian.Uint32(m[offProcedure:])
	return procedure == procDestroy || procedure == procDestroyFlags
}

// refusal is the answer that libvirt gives when a domain's job is not over in time.
func (m message) refusal() message {
	r := append(message{}, m[:offEnd]...)
	binary.BigEndian.PutUint32(r[offType:], typeReply)
	binary.BigEndian.PutUint32(r[offStatus:], withError)
	word := func(n uint32) { r = binary.BigEndian.AppendUint32(r, n) }
	const text = "Timed out during operation: cannot acquire state change lock (held by " +
		"monitor=remoteDispatchDomainCreateXML)"
	word(errOperationTimeout)
	word(domainQEMU)
	word(1) // there is a text
	word(uint32(len(text)))
	r = append(r, text...)
	r = append(r, make([]byte, (4-len(text)%4)%4)...)
	word(levelErr)
	for range 6 { // no domain, three texts that are not there, two numbers
		word(0)
	}
	word(0) // and no network
	binary.BigEndian.PutUint32(r, uint32(len(r)))
	return r
}
