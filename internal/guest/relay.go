package guest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// A relay carries TCP connections of a VM to services of its host over the service port. The guest opens them, each
// under a number, and names a port; the host decides what is behind it. Nothing of a connection survives a cut: a host
// that comes anew begins an epoch, and frames of another epoch are dropped. A frame's offset is its epoch and its
// connection's number.
//
// relayWindow bounds the bytes of a connection that one end has sent and the other has not passed on. MaxRelayed bounds
// the connections. The guest may be hostile: an end that sends more loses the connection.

// MaxRelayed bounds the connections of one VM to services at a time.
const MaxRelayed = 128

const (
	relayWindow = 128 << 10
	relayChunk  = 32 << 10
)

// relayHalfOpen is how long a connection whose one end has ended may carry nothing: a service that hangs never answers
// the end of its client.
const relayHalfOpen = 5 * time.Minute

// relay is what both ends have.
type relay struct {
	writing sync.Mutex // one frame at a time
	channel io.Writer
	buf     []byte

	halfOpen time.Duration // relayHalfOpen; mu guards it, too

	mu    sync.Mutex
	epoch uint32
	busy  int // connections whose goroutines have not all ended
	conns map[uint32]*relayed
}

// relayed is one connection.
type relayed struct {
	relay *relay
	key   uint64
	conn  net.Conn // nil while the host connects. relay.mu guards all

	changed sync.Cond
	queue   []byte // from the other end, to be written to conn
	held    int    // bytes from the other end that were not acknowledged
	ended   bool   // nothing more comes behind queue
	shut    bool   // that has been passed on to conn
	credit  int    // bytes that the other end takes
	open    int    // directions
	dead    bool
}

// send writes a frame, and blocks while the other end does not read.
func (r *relay) send(f frame) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.buf = appendFrame(r.buf[:0], f)
	_, err := r.channel.Write(r.buf)
	return err
}

// sendAnew writes a frame that the other end finds though it may have half a frame of before.
func (r *relay) sendAnew(f frame) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.channel.Write(appendFrame(make([]byte, headSize+maxPayload+tailSize), f))
	return err
}

func keyOf(epoch, number uint32) uint64 { return uint64(epoch)<<32 | uint64(number) }

// enterLocked makes a connection; nil where there are too many, or this one is there.
func (r *relay) enterLocked(number uint32, conn net.Conn) *relayed {
	if r.busy >= MaxRelayed || r.conns[number] != nil {
		return nil
	}
	r.busy++
	c := &relayed{relay: r, key: keyOf(r.epoch, number), conn: conn, credit: relayWindow, open: 2}
	c.changed.L = &r.mu
	r.conns[number] = c
	return c
}

// take handles a frame of a connection. It reports whether the other end broke the rules.
func (r *relay) take(f frame) (broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conns[uint32(f.offset)]
	if c == nil || c.key != f.offset {
		return false
	}
	switch f.kind {
	case frameData:
		if broken = c.ended || c.held+len(f.payload) > relayWindow; !broken {
			c.held += len(f.payload)
			c.queue = append(c.queue, f.payload...)
		}
	case frameFin:
		c.ended = true
	case frameAck:
		n := 0
		if len(f.payload) == 4 {
			n = int(binary.LittleEndian.Uint32(f.payload))
		}
		if broken = n == 0 || n > relayWindow-c.credit; !broken {
			c.credit += n
		}
	case frameReset:
		c.killLocked()
	}
	if broken {
		c.killLocked()
	}
	c.changed.Broadcast()
	return broken
}

// killLocked ends a connection on this side.
func (c *relayed) killLocked() {
	if c.dead {
		return
	}
	c.dead, c.queue = true, nil
	delete(c.relay.conns, uint32(c.key))
	if c.conn != nil {
		refuse(c.conn)
	}
	c.changed.Broadcast()
}

// refuse closes a connection in a way that its other end takes for a broken one, not for an end.
func refuse(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	conn.Close()
}

// abort ends a connection on both sides.
func (c *relayed) abort() {
	c.relay.mu.Lock()
	was := c.dead
	c.killLocked()
	c.relay.mu.Unlock()
	if !was {
		c.relay.send(frame{kind: frameReset, offset: c.key})
	}
}

func (r *relay) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.killLocked()
	}
}

// run carries a connection until both directions have ended.
func (c *relayed) run() {
	var ends sync.WaitGroup
	ends.Go(c.inward)
	c.outward()
	ends.Wait()
}

// leave makes room for another connection: nothing works on this one any more.
func (r *relay) leave() {
	r.mu.Lock()
	r.busy--
	r.mu.Unlock()
}

// endDirection closes a connection whose second direction has ended.
func (c *relayed) endDirection() {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	if c.open--; c.open == 0 && !c.dead {
		c.dead = true
		delete(c.relay.conns, uint32(c.key))
		c.conn.Close()
	}
}

// outward carries what conn sends to the other end.
func (c *relayed) outward() {
	buf := make([]byte, relayChunk)
	for {
		most := c.awaitCredit()
		if most == 0 {
			return
		}
		n, err := c.conn.Read(buf[:min(most, len(buf))])
		if n > 0 && !c.sent(buf[:n]) {
			return
		}
		switch {
		case err == io.EOF:
			if c.relay.send(frame{kind: frameFin, offset: c.key}) != nil {
				c.abort()
			}
			c.endDirection()
			return
		case err != nil:
			c.abort()
			return
		}
	}
}

// awaitCredit waits until the other end takes something; 0: the connection is over.
func (c *relayed) awaitCredit() int {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	for c.credit == 0 && !c.dead {
		c.changed.Wait()
	}
	if c.dead {
		return 0
	}
	return c.credit
}

func (c *relayed) sent(data []byte) bool {
	c.relay.mu.Lock()
	c.credit -= len(data)
	dead := c.dead
	if c.shut && !dead {
		c.conn.SetReadDeadline(time.Now().Add(c.relay.halfOpen))
	}
	c.relay.mu.Unlock()
	if dead {
		return false
	}
	if c.relay.send(frame{kind: frameData, offset: c.key, payload: data}) != nil {
		c.abort()
		return false
	}
	return true
}

// inward carries what comes from the other end to conn.
func (c *relayed) inward() {
	for {
		data, more := c.awaitData()
		if len(data) == 0 {
			if !more {
				return
			}
			break
		}
		if _, err := c.conn.Write(data); err != nil {
			c.abort()
			return
		}
		c.relay.mu.Lock()
		c.held -= len(data)
		c.relay.mu.Unlock()
		ack := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
		if c.relay.send(frame{kind: frameAck, offset: c.key, payload: ack}) != nil {
			c.abort()
			return
		}
	}
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	c.relay.mu.Lock()
	c.shut = true
	c.conn.SetReadDeadline(time.Now().Add(c.relay.halfOpen))
	c.relay.mu.Unlock()
	c.endDirection()
}

// awaitData takes what has come. Nothing is the end, of the direction or, not alive, of the connection. The bytes count
// against the window until they are acknowledged at the other end.
func (c *relayed) awaitData() (data []byte, alive bool) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	for len(c.queue) == 0 && !c.ended && !c.dead {
		c.changed.Wait()
	}
	data, c.queue = c.queue, nil
	return data, !c.dead
}
