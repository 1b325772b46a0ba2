package guest

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// port stands for a virtio-serial port: the guest's end stays open while hosts come and go. A host that goes takes with
// it whatever was under way in the middle of a frame.
type port struct {
	mu      sync.Mutex
	changed *sync.Cond
	toGuest []byte
	host    net.Conn
	closed  bool
}

func newPort() *port {
	p := &port{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// connect makes a new host end. Bytes of the old one that the guest has not read yet are cut at a random place.
func (p *port) connect(r *rand.Rand) net.Conn {
	near, far := net.Pipe()
	p.mu.Lock()
	if p.host != nil {
		p.host.Close()
		p.toGuest = p.toGuest[:r.IntN(len(p.toGuest)+1)]
	}
	p.host = far
	p.changed.Broadcast()
	p.mu.Unlock()
	go p.pump(far)
	return near
}

func (p *port) pump(far net.Conn) {
	buf := make([]byte, 3000)
	for {
		n, err := far.Read(buf)
		p.mu.Lock()
		if p.host != far {
			p.mu.Unlock()
			return
		}
		p.toGuest = append(p.toGuest, buf[:n]...)
		p.changed.Broadcast()
		for len(p.toGuest) > 100_000 && p.host == far {
			p.changed.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *port) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.toGuest) == 0 {
		if p.closed {
			return 0, io.EOF
		}
		p.changed.Wait()
	}
	n := copy(b, p.toGuest)
	p.toGuest = p.toGuest[n:]
	p.changed.Broadcast()
	return n, nil
}

func (p *port) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		p.mu.Lock()
		for p.host == nil && !p.closed {
			p.changed.Wait()
		}
		host, closed := p.host, p.closed
		p.mu.Unlock()
		if closed {
			return done, io.ErrClosedPipe
		}
		n, err := host.Write(b[done:min(done+2000, len(b))])
		done += n
		if err == nil {
			continue
		}
		p.mu.Lock()
		if p.host == host {
			p.host = nil
		}
		p.mu.Unlock()
		done = min(done+2000, len(b)) // what was under way is lost
	}
	return len(b), nil
}

func (p *port) shut() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
}

// cuttable breaks after a number of bytes in either direction.
type cuttable struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (c *cuttable) spend(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left -= n; c.left < 0 {
		c.Close()
		return io.ErrClosedPipe
	}
	return nil
}

func (c *cuttable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if e := c.spend(n); e != nil {
		return 0, e
	}
	return n, err
}

func (c *cuttable) Write(b []byte) (int, error) {
	c.mu.Lock()
	n := min(len(b), max(c.left, 0)) // a cut may leave half a frame behind
	c.mu.Unlock()
	n, err := c.Conn.Write(b[:n])
	if e := c.spend(len(b)); e != nil {
		return n, e
	}
	return n, err
}

// TestSessionSurvivesCuts sends data through four streams, both ways, over a host side that vanishes at random bytes.
func TestSessionSurvivesCuts(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		host, inside, p := NewSession("job"), NewSession("job"), newPort()
		var ends sync.WaitGroup
		ends.Go(func() { inside.AttachGuest(p) })
		done := make(chan struct{})
		ends.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				host.AttachHost(&cuttable{Conn: p.connect(r), left: 50_000 + r.IntN(500_000)})
			}
		})
		var streams sync.WaitGroup
		for id := range byte(4) {
			transfer(t, &streams, host.Stream(id), inside.Stream(id), seed, 300_000)
			transfer(t, &streams, inside.Stream(id), host.Stream(id), seed+100, 600_000)
		}
		streams.Wait()
		close(done)
		host.Close()
		inside.Close()
		p.shut()
		p.connect(r).Close()
		ends.Wait()
	}
}

func transfer(t *testing.T, wg *sync.WaitGroup, from, to *Stream, seed uint64, size int) {
	data := make([]byte, size)
	for i, r := 0, rand.New(rand.NewPCG(seed, uint64(from.id))); i < size; i++ {
		data[i] = byte(r.Uint32())
	}
	wg.Go(func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+int(seed*997)%40_000)
			if _, err := from.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		from.CloseWrite()
	})
	wg.Go(func() {
		got, err := io.ReadAll(to)
		if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
			t.Errorf("stream %d: got %d of %d bytes, %v", to.id, len(got), len(data), err)
		}
	})
}

func TestStreamHoldsBackAWriterNobodyReads(t *testing.T) {
	s := NewSession("job")
	st := s.Stream(1)
	wrote := make(chan int)
	go func() {
		n, _ := st.Write(make([]byte, 3*Window))
		wrote <- n
	}()
	s.mu.Lock()
	for len(st.out) < Window {
		s.changed.Wait()
	}
	s.mu.Unlock()
	s.Close()
	if n := <-wrote; n != Window {
		t.Errorf("kept %d bytes, want %d", n, Window)
	}
}

func FuzzFrameReader(f *testing.F) {
	good := appendFrame(nil, frame{kind: frameData, stream: 2, offset: 5, payload: []byte("hello")})
	f.Add([]byte("junk"), 3)
	f.Add(good[:10], 0)
	f.Add(append(good, good[:22]...), 1)
	f.Fuzz(func(t *testing.T, junk []byte, cut int) {
		if bytes.Contains(junk, frameMagic) {
			return // a whole frame in the junk is found, and may hold ours
		}
		stream := append(append(append([]byte{}, junk...), good...), good[:len(good)-1]...)
		r := newFrameReader(bytes.NewReader(stream))
		got, err := r.next()
		if err != nil || got.stream != 2 || string(got.payload) != "hello" {
			t.Fatalf("lost the frame after %d bytes of junk: %v", len(junk), err)
		}
		if _, err := r.next(); err != io.EOF {
			t.Fatalf("half a frame taken for a whole one: %v", err)
		}
	})
}
