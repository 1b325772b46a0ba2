package guest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// relayComes is how long connections wait for the first host. Longer than a host asks in vain before it connects anew.
const relayComes = 30 * time.Second

// RelayDevice is the guest's end of the service port: its Read returns io.EOF while no host is there.
type RelayDevice interface {
	io.ReadWriter
	SetWriteDeadline(time.Time) error
}

// RelayGuest is the guest's end of a relay.
type RelayGuest struct {
	relay
	device RelayDevice
	synced chan uint32
	begun  func()        // closes came
	came   chan struct{} // closed when the first host came, or took too long

	// relay.mu guards what follows.
	last    uint32 // number of the newest connection
	here    bool   // a host is there, and answers
	waiting int    // connections that wait for came
}

// NewRelayGuest returns an end whose host has not come yet. Serve drives it.
func NewRelayGuest(device RelayDevice) *RelayGuest {
	came := make(chan struct{})
	return &RelayGuest{device: device, synced: make(chan uint32, 1), came: came,
		begun: sync.OnceFunc(func() { close(came) }),
		relay: relay{channel: device, halfOpen: relayHalfOpen, conns: map[uint32]*relayed{}}}
}

// Carry carries a connection of the VM to the host's service behind a port, until it is over. It is reset where no host
// answers, or there are too many. The first host is waited for: a job begins as soon as its services are listened on.
func (g *RelayGuest) Carry(conn net.Conn, port uint16) {
	c := g.enter(conn)
	if c == nil {
		refuse(conn)
		return
	}
	defer g.leave()
	if g.send(frame{kind: frameOpen, offset: c.key, payload: binary.LittleEndian.AppendUint16(nil, port)}) != nil {
		c.abort()
		return
	}
	c.run()
}

// enter makes a connection when the first host has come; nil: there is no host, or there are too many connections.
func (g *RelayGuest) enter(conn net.Conn) *relayed {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting >= MaxRelayed {
		return nil
	}
	g.waiting++
	g.mu.Unlock()
	<-g.came
	g.mu.Lock()
	g.waiting--
	if !g.here {
		return nil
	}
	g.last++
	return g.enterLocked(g.last, conn)
}

// Serve drives the relay until its device fails.
func (g *RelayGuest) Serve() error {
	defer time.AfterFunc(relayComes, g.begun).Stop()
	defer g.begun()
	go func() {
		for epoch := range g.synced { // the reader never writes: the host may wait for it to read
			g.sendAnew(frame{kind: frameSyncAck, offset: keyOf(epoch, 0)})
		}
	}()
	defer close(g.synced)
	defer g.hostLeft()
	frames := newFrameReader(relayReader{g})
	for {
		f, err := frames.next()
		switch {
		case err != nil:
			return err
		case f.kind == frameSync:
			g.begin(uint32(f.offset >> 32))
		default:
			g.take(f)
		}
	}
}

// begin begins an epoch, if it is not the one that there is.
func (g *RelayGuest) begin(epoch uint32) {
	g.mu.Lock()
	if !g.here || epoch != g.epoch {
		for _, c := range g.conns {
			c.killLocked()
		}
		g.epoch, g.here = epoch, true
		g.device.SetWriteDeadline(time.Time{})
	}
	g.mu.Unlock()
	g.begun()
	select {
	case g.synced <- epoch:
	default: // the last one is being answered, and the host asks again
	}
}

// hostLeft ends all connections: their host has gone.
func (g *RelayGuest) hostLeft() {
	g.mu.Lock()
	was := g.here
	g.here = false
	g.mu.Unlock()
	if was {
		g.device.SetWriteDeadline(time.Now()) // who waits in a write for the host to read
		g.killAll()
	}
}

// relayReader waits for a host where there is none.
type relayReader struct{ *RelayGuest }

func (r relayReader) Read(b []byte) (int, error) {
	for {
		n, err := r.device.Read(b)
		if n > 0 || err != nil && err != io.EOF {
			return n, err
		}
		r.hostLeft()
		time.Sleep(20 * time.Millisecond)
	}
}
