package guest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPortServesOneJobAfterTheOther: what an earlier job's host and guest left under way in a port reaches nobody.
func TestPortServesOneJobAfterTheOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 8 {
		p := newPort()
		first, inFirst := NewSession("first"), NewSession("first")
		opened, guestGone := &handle{port: p}, make(chan error, 1)
		go func() { guestGone <- inFirst.AttachGuest(opened) }()
		go first.AttachHost(p.connect(r))
		go io.Copy(inFirst.Stream(StreamStdout), strings.NewReader(strings.Repeat("secret", 50_000)))
		go io.Copy(first.Stream(StreamStdin), strings.NewReader(strings.Repeat("secret", 50_000)))
		io.ReadFull(first.Stream(StreamStdout), make([]byte, 1000+r.IntN(100_000)))

		// The job ends; its host leaves a whole conversation behind, cut anywhere, and the port is given to the next
		// job.
		inFirst.Close()
		opened.Close()
		p.mu.Lock()
		old := p.host
		p.mu.Unlock()
		if old != nil {
			old.Close() // its host hangs up
		}
		<-guestGone
		p.mu.Lock()
		p.toGuest = append(p.toGuest, stale(first, r)...)
		p.mu.Unlock()
		second, inSecond := NewSession("second"), NewSession("second")
		again := &handle{port: p}
		go inSecond.AttachGuest(again)
		near, far := net.Pipe()
		p.mu.Lock()
		p.host = far
		p.changed.Broadcast()
		p.mu.Unlock()
		go p.pump(far)
		go second.AttachHost(near)
		go func() {
			io.WriteString(inSecond.Stream(StreamStdout), "out")
			inSecond.Stream(StreamStdout).CloseWrite()
			io.WriteString(second.Stream(StreamStdin), "in")
			second.Stream(StreamStdin).CloseWrite()
		}()
		out, err := io.ReadAll(second.Stream(StreamStdout))
		in, err2 := io.ReadAll(inSecond.Stream(StreamStdin))
		if string(out) != "out" || string(in) != "in" || err != nil || err2 != nil {
			t.Fatalf("round %d: the second job's output is %.20q, %v; its input %.20q, %v", round, out, err, in, err2)
		}
		first.Close()
		second.Close()
		inSecond.Close()
		again.Close()
		p.shut()
		near.Close()
	}
}

// stale is what a host of session s may have sent: its half of a handshake, and data.
func stale(s *Session, r *rand.Rand) []byte {
	b := appendFrame(nil, frame{kind: frameMarks})
	for range 3 {
		b = appendFrame(b, frame{kind: frameSync, payload: append(make([]byte, nonceSize), s.name[:]...)})
		b = appendFrame(b, frame{kind: frameMarks, payload: append([]byte{StreamStdin}, make([]byte, 8)...)})
		b = appendFrame(b, frame{kind: frameData, stream: StreamStdin, payload: bytes.Repeat([]byte("secret"), 100)})
	}
	return b[:r.IntN(len(b))]
}

// handle is one opening of a port by the guest: closing it ends its reads and writes, and the port can be opened again.
type handle struct {
	*port
	shut bool
}

func (h *handle) Read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.toGuest) == 0 && !h.shut {
		h.changed.Wait()
	}
	if h.shut {
		return 0, io.ErrClosedPipe
	}
	n := copy(b, h.toGuest)
	h.toGuest = h.toGuest[n:]
	h.changed.Broadcast()
	return n, nil
}

func (h *handle) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		h.mu.Lock()
		for h.host == nil && !h.shut {
			h.changed.Wait()
		}
		host, shut := h.host, h.shut
		h.mu.Unlock()
		if shut {
			return done, io.ErrClosedPipe
		}
		n, err := host.Write(b[done:min(done+2000, len(b))])
		done += n
		h.mu.Lock()
		if err != nil && h.host == host {
			h.host = nil
		}
		h.mu.Unlock()
	}
	return len(b), nil
}

func (h *handle) Close() error {
	h.mu.Lock()
	h.shut = true
	h.changed.Broadcast()
	h.mu.Unlock()
	return nil
}

// TestSessionIsNamed: a host gets no answer from another job's guest.
func TestSessionIsNamed(t *testing.T) {
	p := newPort()
	defer p.shut()
	inside, host := NewSession("mine"), NewSession("yours")
	go inside.AttachGuest(p)
	go host.AttachHost(p.connect(rand.New(rand.NewPCG(1, 1))))
	io.WriteString(host.Stream(StreamStdin), "not for you")
	time.Sleep(100 * time.Millisecond) // nothing may happen, for as long as one cares to look
	inside.mu.Lock()
	defer inside.mu.Unlock()
	if inside.open || len(inside.stream(StreamStdin).in) > 0 {
		t.Error("another job's host was let in")
	}
	inside.closed = true
	host.Close()
}
