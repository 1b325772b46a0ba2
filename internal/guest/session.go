package guest

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"
)

// Window is how many bytes of one stream may be under way: sent, and not yet taken by the reader at the other end. It
// bounds the memory of both ends and is what slows a job down whose output nobody reads.
const Window = 512 << 10

// ErrClosed is returned by streams of a closed Session.
var ErrClosed = errors.New("session closed")

// Session carries numbered two-way byte streams over a channel that may be cut at any byte and be given again. What one
// end writes, the other reads once, in order and whole, across any number of cuts. Both ends call Attach for each new
// channel.
type Session struct {
	mu      sync.Mutex
	changed sync.Cond // anything below changed
	streams map[byte]*Stream
	order   []byte // of streams, for taking turns
	turn    int
	link    int    // counts Attach calls; a goroutine of an older link stops
	first   []byte // encoded frames to send before anything else on this link
	asked   bool   // as the guest side: the host of this link has named this session
	open    bool   // both ends know each other's marks: data may flow
	closed  bool
	name    [nameSize]byte
}

// nameSize is that of a session's name in the handshake; nonceSize that of the random number before it.
const nameSize, nonceSize = 16, 16

// NewSession makes the session of a job, without a channel. A channel may have carried another job's session before: an
// end answers only an end of the same job, and takes nothing that came before that answer.
func NewSession(job string) *Session {
	s := &Session{streams: map[byte]*Stream{}}
	sum := sha256.Sum256([]byte(job))
	copy(s.name[:], sum[:])
	s.changed.L = &s.mu
	return s
}

// Stream returns stream id, making it at first use.
func (s *Session) Stream(id byte) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(id)
}

func (s *Session) stream(id byte) *Stream {
	st := s.streams[id]
	if st == nil {
		st = &Stream{session: s, id: id}
		s.streams[id] = st
		s.order = append(s.order, id)
	}
	return st
}

// Close ends all streams with ErrClosed. The channel in use is the caller's to close.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	s.link++
	s.changed.Broadcast()
	s.mu.Unlock()
}

// AttachHost drives the session over channel as the host side, until the channel breaks; it returns why.
func (s *Session) AttachHost(channel io.ReadWriter) error {
	nonce := make([]byte, nonceSize, nonceSize+nameSize)
	rand.Read(nonce)
	nonce = append(nonce, s.name[:]...)
	sync := appendFrame(nil, frame{kind: frameSync, payload: nonce})
	// The guest's reader may be waiting for the rest of a frame that an earlier host left half-sent. A frame's worth of
	// zeros completes that frame, whose tail then shows that it is none.
	again := append(make([]byte, headSize+maxPayload+tailSize), sync...)
	link := s.begin(sync)
	if link > 1 {
		link = s.begin(again)
	}
	stop := make(chan struct{})
	defer close(stop)
	go s.repeatSync(link, again, channel, stop)
	return s.drive(link, channel, func(f frame) bool { return s.hostHandshake(link, nonce, f) })
}

// AttachGuest drives the session over channel as the guest side, until the channel breaks; it returns why. The channel
// may be one device that stays open while hosts come and go.
func (s *Session) AttachGuest(channel io.ReadWriter) error {
	link := s.begin(nil)
	return s.drive(link, channel, func(f frame) bool { return s.guestHandshake(link, f) })
}

func (s *Session) begin(first []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link++
	s.open, s.asked = false, false
	s.first = first
	s.changed.Broadcast()
	return s.link
}

// unanswered is how often the host's end asks before it gives a channel up. QEMU tells a guest of a new host in one of
// 32 buffers that all ports share, and does not tell it when none is free: then only another connection helps.
const unanswered = 20

// repeatSync asks again when the guest does not answer: an earlier host may not have been in this process.
func (s *Session) repeatSync(link int, again []byte, channel io.ReadWriter, stop <-chan struct{}) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for asked := 1; ; asked++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if c, ok := channel.(io.Closer); ok && asked > unanswered {
			c.Close()
			return
		}
		s.mu.Lock()
		if s.open || s.link != link {
			s.mu.Unlock()
			return
		}
		if len(s.first) == 0 { // the last one is written: a guest that does not read yet gets no second
			s.first = again
			s.changed.Broadcast()
		}
		s.mu.Unlock()
	}
}

// drive runs the link's reader here and its writer beside it.
func (s *Session) drive(link int, channel io.ReadWriter, handshake func(frame) bool) error {
	written := make(chan error, 1)
	go func() { written <- s.write(link, channel) }()
	err := s.read(link, channel, handshake)
	s.mu.Lock()
	if s.link == link {
		s.link++
		s.open = false
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	if c, ok := channel.(io.Closer); ok {
		c.Close() // a writer that is stuck in the channel ends
	}
	return errors.Join(err, <-written)
}

func (s *Session) read(link int, channel io.Reader, handshake func(frame) bool) error {
	frames := newFrameReader(channel)
	for {
		f, err := frames.next()
		if err != nil {
			return err
		}
		if handshake(f) {
			continue
		}
		s.mu.Lock()
		if s.link != link {
			s.mu.Unlock()
			return nil
		}
		if s.open {
			s.take(f)
		}
		s.mu.Unlock()
	}
}

// hostHandshake handles the frames that open a link; it reports whether f was one, or came before the link was open.
func (s *Session) hostHandshake(link int, nonce []byte, f frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != link {
		return true
	}
	// The guest answers each sync, also a repeated one that it got late, and waits for marks each time.
	if f.kind == frameSyncAck && len(f.payload) >= len(nonce) && string(f.payload[:len(nonce)]) == string(nonce) {
		s.first = appendFrame(nil, frame{kind: frameMarks, payload: s.marks()})
		s.resume(f.payload[len(nonce):])
	}
	return !s.open || f.kind > frameAck
}

// guestHandshake is the other end of hostHandshake. A sync may come at any time: a new host is there.
func (s *Session) guestHandshake(link int, f frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.link != link:
		return false
	// of a job that had this channel before, or will have it
	case f.kind == frameSync && !bytes.HasSuffix(f.payload, s.name[:]):
	case f.kind == frameSync:
		s.open, s.asked = false, true
		s.first = appendFrame(nil, frame{kind: frameSyncAck,
			payload: append(append([]byte{}, f.payload...), s.marks()...)})
		s.changed.Broadcast()
	case f.kind == frameMarks && s.asked:
		s.resume(f.payload)
	default:
		return f.kind > frameAck
	}
	return true
}

// marks returns how much of each stream has arrived here: nine bytes a stream.
func (s *Session) marks() []byte {
	var b []byte
	for _, id := range s.order {
		b = binary.LittleEndian.AppendUint64(append(b, id), s.streams[id].received)
	}
	return b
}

// resume goes on sending where the other side's marks say, and tells it again what was taken here.
func (s *Session) resume(marks []byte) {
	for _, st := range s.streams {
		st.rewind(0)
		st.ackDue = true
	}
	for ; len(marks) >= 9; marks = marks[9:] {
		s.stream(marks[0]).rewind(binary.LittleEndian.Uint64(marks[1:]))
	}
	s.open = true
	s.changed.Broadcast()
}

// take handles a frame of an open link.
func (s *Session) take(f frame) {
	st := s.stream(f.stream)
	switch f.kind {
	case frameData:
		st.accept(f.offset, f.payload)
	case frameFin:
		st.acceptEnd(f.offset)
	case frameAck:
		st.acknowledge(f.offset)
	}
	s.changed.Broadcast()
}

func (s *Session) write(link int, channel io.Writer) error {
	for {
		buf, ok := s.nextBytes(link)
		if !ok {
			return nil
		}
		if _, err := channel.Write(buf); err != nil {
			return err
		}
	}
}

// nextBytes waits for something to send on this link.
func (s *Session) nextBytes(link int) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.link != link {
			return nil, false
		}
		if buf := s.first; len(buf) > 0 {
			s.first = nil
			return buf, true
		}
		if s.open {
			if buf := s.nextFrames(); len(buf) > 0 {
				return buf, true
			}
		}
		s.changed.Wait()
	}
}

// nextFrames encodes all acknowledgements that are due and one frame of data, streams taking turns.
func (s *Session) nextFrames() []byte {
	var buf []byte
	for _, id := range s.order {
		buf = s.streams[id].appendAck(buf)
	}
	for range s.order {
		s.turn = (s.turn + 1) % len(s.order)
		if next, ok := s.streams[s.order[s.turn]].appendData(buf); ok {
			return next
		}
	}
	return buf
}
