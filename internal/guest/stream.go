package guest

import "io"

// Stream is one two-way stream of a Session. Reads and writes may go on at the same time; each direction has one user.
type Stream struct {
	session *Session
	id      byte

	// What we send. out holds the bytes from acked on.
	out     []byte
	acked   uint64 // taken by the reader at the other end
	sent    uint64 // handed to the current link
	ended   bool   // no more writes; the end is at acked+len(out)
	endSent bool

	// What we receive. in holds the bytes before received that nobody has read yet.
	in       []byte
	received uint64
	inEnded  bool
	toldAck  uint64 // the last acknowledgement sent
	ackDue   bool
}

// Write blocks while a Window of bytes waits for the reader at the other end. It returns when p is kept, not when it
// has arrived.
func (st *Stream) Write(p []byte) (int, error) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := 0; ; {
		switch {
		case s.closed || st.ended:
			return done, ErrClosed
		case done == len(p):
			return done, nil
		case len(st.out) < Window:
			n := min(len(p)-done, Window-len(st.out))
			st.out = append(st.out, p[done:done+n]...)
			done += n
			s.changed.Broadcast()
		default:
			s.changed.Wait()
		}
	}
}

// CloseWrite ends our direction: the reader at the other end gets io.EOF after the last byte.
func (st *Stream) CloseWrite() {
	s := st.session
	s.mu.Lock()
	st.ended = true
	s.changed.Broadcast()
	s.mu.Unlock()
}

// Flushed blocks until everything written, and the end if there is one, has been taken at the other end.
func (st *Stream) Flushed() error {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(st.out) > 0 || st.ended && !st.endSent {
		if s.closed {
			return ErrClosed
		}
		s.changed.Wait()
	}
	return nil
}

// Read blocks for at least one byte. Bytes that were read are acknowledged, and the writer may send as many more.
func (st *Stream) Read(p []byte) (int, error) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(st.in) == 0 {
		if st.inEnded {
			return 0, io.EOF
		}
		if s.closed {
			return 0, ErrClosed
		}
		s.changed.Wait()
	}
	n := copy(p, st.in)
	st.in = st.in[n:]
	if len(st.in) == 0 {
		st.in = nil
	}
	// Acknowledge in larger steps: a frame for every small read would double the traffic.
	if st.taken()-st.toldAck >= Window/8 || len(st.in) == 0 {
		st.ackDue = true
		s.changed.Broadcast()
	}
	return n, nil
}

// taken is how many bytes have been read here.
func (st *Stream) taken() uint64 { return st.received - uint64(len(st.in)) }

// accept keeps what is new of payload at offset. A gap can only stem from an older link, and is sent again.
func (st *Stream) accept(offset uint64, payload []byte) {
	if offset > st.received || offset+uint64(len(payload)) <= st.received || st.inEnded {
		return
	}
	fresh := payload[st.received-offset:]
	if len(st.in)+len(fresh) > 2*Window {
		return // the other end ignores the window: hostile or broken; never our memory
	}
	st.in = append(st.in, fresh...)
	st.received += uint64(len(fresh))
}

func (st *Stream) acceptEnd(offset uint64) {
	if offset == st.received {
		st.inEnded = true
	}
}

func (st *Stream) acknowledge(offset uint64) {
	if offset <= st.acked || offset > st.acked+uint64(len(st.out)) {
		return
	}
	st.out = st.out[offset-st.acked:]
	st.acked = offset
	if len(st.out) == 0 {
		st.out = nil
	}
	st.sent = max(st.sent, offset)
}

// rewind goes on sending at the other side's mark.
func (st *Stream) rewind(mark uint64) {
	st.sent = min(max(mark, st.acked), st.acked+uint64(len(st.out)))
	st.endSent = false
}

func (st *Stream) appendAck(buf []byte) []byte {
	if !st.ackDue {
		return buf
	}
	st.ackDue = false
	st.toldAck = st.taken()
	return appendFrame(buf, frame{kind: frameAck, stream: st.id, offset: st.toldAck})
}

func (st *Stream) appendData(buf []byte) ([]byte, bool) {
	pending := st.out[st.sent-st.acked:]
	if len(pending) == 0 {
		if !st.ended || st.endSent {
			return buf, false
		}
		st.endSent = true
		st.session.changed.Broadcast()
		return appendFrame(buf, frame{kind: frameFin, stream: st.id, offset: st.sent}), true
	}
	chunk := pending[:min(len(pending), maxPayload)]
	buf = appendFrame(buf, frame{kind: frameData, stream: st.id, offset: st.sent, payload: chunk})
	st.sent += uint64(len(chunk))
	return buf, true
}
