package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// relayPort stands for the guest's end of a service port: its host comes and goes.
type relayPort struct {
	mu       sync.Mutex
	changed  *sync.Cond
	host     net.Conn // the guest's end of it; nil: there is none
	deadline bool     // writes end
}

func newRelayPort() *relayPort {
	p := &relayPort{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// connect is a new host's end.
func (p *relayPort) connect(t *testing.T) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.host = near
	p.changed.Broadcast()
	p.mu.Unlock()
	return far
}

func (p *relayPort) Read(b []byte) (int, error) {
	p.mu.Lock()
	host := p.host
	p.mu.Unlock()
	if host == nil {
		return 0, io.EOF
	}
	n, err := host.Read(b)
	if err != nil {
		p.mu.Lock()
		if p.host == host {
			p.host = nil
		}
		p.mu.Unlock()
		return n, io.EOF
	}
	return n, nil
}

func (p *relayPort) Write(b []byte) (int, error) {
	p.mu.Lock()
	for p.host == nil && !p.deadline {
		p.changed.Wait()
	}
	host := p.host
	p.mu.Unlock()
	if host == nil {
		return 0, os.ErrDeadlineExceeded
	}
	if n, err := host.Write(b); err != nil {
		return n, nil // the kernel takes what a host that has gone will never read
	}
	return len(b), nil
}

func (p *relayPort) SetWriteDeadline(d time.Time) error {
	p.mu.Lock()
	p.deadline = !d.IsZero()
	p.changed.Broadcast()
	p.mu.Unlock()
	return nil
}

// relayLab is a guest, and a host that reaches one service by port 80.
type relayLab struct {
	port  *relayPort
	guest *RelayGuest
	at    string // of the service

	halfOpen time.Duration // of its hosts; 0: as it is
}

func newRelayLab(t *testing.T, serve func(*net.TCPConn)) *relayLab {
	l := listenTCP(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	lab := &relayLab{port: newRelayPort(), at: l.Addr().String()}
	lab.guest = NewRelayGuest(lab.port)
	go lab.guest.Serve()
	return lab
}

func listenTCP(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

var errNoSuchPort = errors.New("no such port")

// attach runs a host until stop; done is closed when nothing of it is left.
func (lab *relayLab) attach(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	channel, done := lab.port.connect(t), make(chan struct{})
	go func() {
		defer close(done)
		h := newRelayHost(channel, func(ctx context.Context, port uint16) (net.Conn, error) {
			if port != 80 {
				return nil, errNoSuchPort
			}
			return new(net.Dialer).DialContext(ctx, "tcp", lab.at)
		})
		h.halfOpen = cmp.Or(lab.halfOpen, h.halfOpen)
		h.run(ctx, channel)
	}()
	lab.awaitHost()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func (lab *relayLab) isHere() bool {
	lab.guest.mu.Lock()
	defer lab.guest.mu.Unlock()
	return lab.guest.here
}

func (lab *relayLab) awaitHost() {
	for !lab.isHere() {
		time.Sleep(time.Millisecond)
	}
}

// dial is what a program in the VM has of a connection.
func (lab *relayLab) dial(t *testing.T, port uint16) *net.TCPConn {
	l := listenTCP(t)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go lab.guest.Carry(in, port)
	return c.(*net.TCPConn)
}

// wantRefused waits for the end of a connection that never says anything.
func wantRefused(t *testing.T, what string, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: read %d, %v", what, n, err)
	}
}

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.Close()
}

func noise(size int, seed uint64) []byte {
	data := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// exchange sends data, ends its direction, and wants the same back.
func exchange(t *testing.T, c *net.TCPConn, data []byte) {
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(data), err)
	}
}

// TestRelay sends 10 MB both ways, over several connections at once, whose ends end one direction after the other.
func TestRelay(t *testing.T) {
	lab := newRelayLab(t, echo)
	lab.attach(t)
	var all sync.WaitGroup
	for i := range 4 {
		c := lab.dial(t, 80)
		all.Go(func() { exchange(t, c, noise(10_000_000+i, uint64(i))) })
	}
	all.Wait()
	lab.wantIdle()
}

// wantIdle waits until the guest has nothing of a connection left.
func (lab *relayLab) wantIdle() {
	for busy := -1; busy != 0; time.Sleep(time.Millisecond) {
		lab.guest.mu.Lock()
		busy = lab.guest.busy
		lab.guest.mu.Unlock()
	}
}

// TestRelayRefuses: ports without a service, services that are down, and connections when there is no host.
func TestRelayRefuses(t *testing.T) {
	lab := newRelayLab(t, echo)
	lab.guest.begun() // it took too long
	wantRefused(t, "no host", lab.dial(t, 80))
	stop := lab.attach(t)
	wantRefused(t, "no service", lab.dial(t, 22))
	at := lab.at
	stop()
	for lab.isHere() {
		time.Sleep(time.Millisecond)
	}
	lab.at = "127.0.0.1:1"
	stop = lab.attach(t)
	wantRefused(t, "service down", lab.dial(t, 80))
	stop()
	for lab.isHere() {
		time.Sleep(time.Millisecond)
	}
	lab.at = at
	lab.attach(t)
	exchange(t, lab.dial(t, 80), []byte("it is up again"))
}

// TestRelayBegins: connections from before the first host wait for it, and no more than those that it would take.
func TestRelayBegins(t *testing.T) {
	lab := newRelayLab(t, echo)
	var early []*net.TCPConn
	for range MaxRelayed {
		early = append(early, lab.dial(t, 80))
	}
	for waiting := 0; waiting < MaxRelayed; time.Sleep(time.Millisecond) {
		lab.guest.mu.Lock()
		waiting = lab.guest.waiting
		lab.guest.mu.Unlock()
	}
	wantRefused(t, "one too many", lab.dial(t, 80))
	lab.attach(t)
	for _, c := range early {
		exchange(t, c, []byte("early"))
	}
}

// TestRelayResets: a broken connection is broken at the other end, not ended.
func TestRelayResets(t *testing.T) {
	broken := make(chan error, 1)
	lab := newRelayLab(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		c.Read(b)
		if b[0] == 'r' {
			refuse(c)
			return
		}
		c.Write(b)
		_, err := c.Read(b)
		broken <- err
	})
	lab.attach(t)
	c := lab.dial(t, 80)
	c.Write([]byte("r"))
	if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a service that resets: %v", err)
	}
	c = lab.dial(t, 80)
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	refuse(c)
	if err := <-broken; err == nil || err == io.EOF {
		t.Errorf("a client that resets: %v", err)
	}
}

// TestRelayHostGoes: connections end with their host, and a new host has new ones.
func TestRelayHostGoes(t *testing.T) {
	lab := newRelayLab(t, echo)
	for range 3 {
		stop := lab.attach(t)
		c := lab.dial(t, 80)
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		stop()
		wantRefused(t, "its host has gone", c)
		for lab.isHere() {
			time.Sleep(time.Millisecond)
		}
	}
	lab.attach(t)
	exchange(t, lab.dial(t, 80), noise(1_000_000, 1))
}

// TestRelayHangs: a service that takes nothing stops its own clients alone, and no more than a window of each is kept.
func TestRelayHangs(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	lab := newRelayLab(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if io.ReadFull(c, b); b[0] == 'h' {
			<-hang
			c.Close()
			return
		}
		echo(c)
	})
	stop := lab.attach(t)
	stuck := lab.dial(t, 80)
	go stuck.Write(append([]byte("h"), make([]byte, 64<<20)...))
	c := lab.dial(t, 80)
	c.Write([]byte("e"))
	exchange(t, c, noise(1_000_000, 2))
	stop() // returns though the service hangs
	wantRefused(t, "the host has gone", stuck)
}

// TestRelayHalfOpen: a service that never answers the end of its client keeps its connection for a time only.
func TestRelayHalfOpen(t *testing.T) {
	hang, began := make(chan struct{}), make(chan struct{})
	defer close(hang)
	lab := newRelayLab(t, func(c *net.TCPConn) { close(began); <-hang; c.Close() })
	lab.halfOpen = time.Millisecond
	lab.attach(t)
	c := lab.dial(t, 80)
	c.CloseWrite()
	<-began
	wantRefused(t, "a client that has ended", c)
	lab.wantIdle()
}

// TestRelayMost: connections beyond the most are refused, and have room when others end.
func TestRelayMost(t *testing.T) {
	lab := newRelayLab(t, echo)
	lab.attach(t)
	var held []*net.TCPConn
	for range MaxRelayed {
		c := lab.dial(t, 80)
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	wantRefused(t, "one too many", lab.dial(t, 80))
	for _, c := range held {
		c.Close()
	}
	lab.wantIdle()
	exchange(t, lab.dial(t, 80), []byte("room again"))
}

// TestRelayHostile: a guest that keeps no rule loses its connections, and its host nothing.
func TestRelayHostile(t *testing.T) {
	l := listenTCP(t)
	guestEnd := newRelayPort()
	channel := guestEnd.connect(t)
	dials := make(chan struct{}, 10*MaxRelayed)
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		over <- RelayHost(ctx, channel, func(ctx context.Context, _ uint16) (net.Conn, error) {
			dials <- struct{}{}
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String()) // nobody accepts, nobody reads
		})
	}()
	frames := newFrameReader(guestEnd)
	sync, err := frames.next()
	for err == nil && sync.kind != frameSync {
		sync, err = frames.next()
	}
	if err != nil {
		t.Fatal(err)
	}
	epoch := uint32(sync.offset >> 32)
	say := func(kind frameType, number uint32, payload []byte) {
		guestEnd.Write(appendFrame(nil, frame{kind: kind, offset: keyOf(epoch, number), payload: payload}))
	}
	wantReset := func(what string, number uint32) {
		t.Helper()
		for {
			f, err := frames.next()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if f.kind == frameReset && f.offset == keyOf(epoch, number) {
				return
			}
		}
	}
	say(frameSyncAck, 0, nil)
	say(frameSyncAck, 0, nil)
	port := binary.LittleEndian.AppendUint16(nil, 80)
	say(frameOpen, 1, nil)
	wantReset("an open without a port", 1)
	say(frameOpen, 2, port)
	say(frameAck, 2, []byte{1, 0, 0, 0})
	wantReset("an acknowledgement of what was not sent", 2)
	say(frameOpen, 3, port)
	for range 400 { // more than all buffers between here and who never reads
		say(frameData, 3, make([]byte, maxPayload))
	}
	wantReset("more than the window", 3)
	say(frameOpen, 4, port)
	say(frameFin, 4, nil)
	say(frameData, 4, []byte("x"))
	wantReset("data behind the end", 4)
	guestEnd.Write(noise(300_000, 3))
	guestEnd.Write(make([]byte, headSize+maxPayload+tailSize))
	for i := range uint32(5 * MaxRelayed) {
		say(frameOpen, 100+i, port)
	}
	wantReset("the last of too many", 100+5*MaxRelayed-1)
	if n := len(dials); n > MaxRelayed+3 {
		t.Errorf("%d connections at a time", n)
	}
	cancel()
	if err := <-over; err == nil {
		t.Error("the relay ended without a reason")
	}
}
