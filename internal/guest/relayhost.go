package guest

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// RelayHost answers a guest's connections over channel, the host's end of the service port, until that breaks or ctx
// ends; then none is left. dial connects to what the guest may reach by a port, or refuses, and has to end with its
// context.
func RelayHost(ctx context.Context, channel io.ReadWriteCloser,
	dial func(ctx context.Context, port uint16) (net.Conn, error)) error {
	return newRelayHost(channel, dial).run(ctx, channel)
}

func newRelayHost(channel io.Writer, dial func(ctx context.Context, port uint16) (net.Conn, error)) *relayHost {
	return &relayHost{dial: dial, answered: make(chan struct{}), relay: relay{channel: channel, halfOpen: relayHalfOpen,
		epoch: rand.Uint32(), conns: map[uint32]*relayed{}}}
}

func (h *relayHost) run(ctx context.Context, channel io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	h.ctx = ctx
	stop := context.AfterFunc(ctx, func() { channel.Close() })
	h.over.Go(func() { h.ask(channel) })
	err := h.read(channel)
	cancel()
	stop()
	channel.Close() // who is stuck in it ends
	h.killAll()
	h.over.Wait()
	return err
}

type relayHost struct {
	relay
	ctx      context.Context
	dial     func(ctx context.Context, port uint16) (net.Conn, error)
	over     sync.WaitGroup
	answered chan struct{} // closed when the guest knows of this epoch
}

// ask begins the epoch. QEMU does not always tell a guest of a new host, as Session has it: then the channel is given
// up, and another connection helps.
func (h *relayHost) ask(channel io.Closer) {
	begin := frame{kind: frameSync, offset: keyOf(h.epoch, 0)}
	if h.sendAnew(begin) != nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for asked := 1; ; asked++ {
		select {
		case <-h.answered:
			return
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		if asked > unanswered {
			channel.Close()
			return
		}
		if h.send(begin) != nil {
			return
		}
	}
}

func (h *relayHost) read(channel io.Reader) error {
	frames := newFrameReader(channel)
	known := false
	for {
		f, err := frames.next()
		switch {
		case err != nil:
			return err
		case uint32(f.offset>>32) != h.epoch:
		case f.kind == frameSyncAck:
			if !known {
				known = true
				close(h.answered)
			}
		case f.kind == frameOpen:
			h.open(f)
		default:
			if h.take(f) {
				h.send(frame{kind: frameReset, offset: f.offset}) // an honest guest always reads
			}
		}
	}
}

// open begins a connection. One that is refused is reset, and so is one that breaks the rules.
func (h *relayHost) open(f frame) {
	h.mu.Lock()
	var c *relayed
	if len(f.payload) == 2 {
		c = h.enterLocked(uint32(f.offset), nil)
	}
	h.mu.Unlock()
	if c == nil {
		h.send(frame{kind: frameReset, offset: f.offset})
		return
	}
	port := binary.LittleEndian.Uint16(f.payload)
	h.over.Go(func() {
		defer h.leave()
		conn, err := h.dial(h.ctx, port)
		if err != nil {
			c.abort()
			return
		}
		h.mu.Lock()
		c.conn = conn
		dead := c.dead
		h.mu.Unlock()
		if dead { // the guest did not wait
			conn.Close()
			return
		}
		c.run()
	})
}
