package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// Blob is a file, or a part of one, that others may have pieces of. Whoever got it closes it.
type Blob struct {
	*Indexed
	io.ReaderAt
	io.Closer
	Held swarm.Bits // pieces that are here, and were verified
}

// Indexed is an index in all its forms.
type Indexed struct {
	Layout *chunk.Layout
	Sum    chunk.Sum
	Text   []byte
}

// NewIndexed returns that of an index in bytes.
func NewIndexed(text []byte) (*Indexed, error) {
	x, err := chunk.Unmarshal(text)
	if err != nil {
		return nil, err
	}
	return &Indexed{chunk.Lay(x), sumOf(text), text}, nil
}

// all returns the bits of all pieces.
func (x *Indexed) all() swarm.Bits {
	bits := swarm.NewBits(len(x.Layout.Pieces))
	for i := range x.Layout.Pieces {
		bits.Set(i)
	}
	return bits
}

// Server gives pieces of files to hosts. It is an http.Handler for the routes of this package.
type Server struct {
	// Open returns what is here of a file; CodeUnknown: nothing is.
	Open func(digest chunk.Sum) (*Blob, error)
	// Caller is the host that asks, as its certificate says.
	Caller  func(*http.Request) string
	Rate    *Rate
	Slots   int  // pieces given at a time
	EachOne int  // of these to one host
	Source  bool // chooses what it gives, so that hosts have something to give each other
	Log     *slog.Logger

	once   sync.Once
	routes *http.ServeMux

	mu     sync.Mutex
	giving int
	by     map[string]int // host → pieces under way
	hands  map[chunk.Sum]*hand
	sent   map[chunk.Sum]int64
}

// hand is what the source gave of one file. Those of files that nobody has asked for lately are forgotten.
type hand struct {
	*swarm.Handout
	index chunk.Sum
	used  time.Time
}

const (
	handAge = time.Hour
	// slowest is how long a host may take for a part of what is sent to it.
	slowest = 15 * time.Second
)

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() {
		s.routes = http.NewServeMux()
		s.routes.HandleFunc("GET "+RouteIndex, s.with(s.index))
		s.routes.HandleFunc("GET "+RouteHeld, s.with(s.held))
		s.routes.HandleFunc("POST "+RoutePiece, s.with(s.piece))
	})
	s.routes.ServeHTTP(w, r)
}

// with opens the file that a request is about.
func (s *Server) with(do func(w http.ResponseWriter, r *http.Request, b *Blob)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		digest, err := chunk.ParseSum(r.PathValue("digest"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b, err := s.Open(digest)
		switch {
		case farm.IsCode(err, CodeUnknown):
			http.Error(w, "nothing of it is here", http.StatusNotFound)
			return
		case err != nil:
			s.Log.Error("file for other hosts", "digest", digest, "error", err)
			http.Error(w, "it cannot be read here", http.StatusInternalServerError)
			return
		}
		defer b.Close()
		if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowest)) == nil {
			do(w, r, b)
		}
	}
}

func (s *Server) index(w http.ResponseWriter, r *http.Request, b *Blob) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b.Text)))
	paced := &pacedWriter{s.Rate, r.Context(), w, http.NewResponseController(w)}
	paced.Write(b.Text) // who does not take it has gone
}

func (s *Server) held(w http.ResponseWriter, _ *http.Request, b *Blob) {
	w.Write(b.Held) // who does not take it has gone
}

func (s *Server) piece(w http.ResponseWriter, r *http.Request, b *Blob) {
	setHeld(w.Header(), b.Held)
	var a ask
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsk)).Decode(&a)
	if err == nil {
		err = a.check(b.Layout)
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case a.Index != b.Sum.String():
		http.Error(w, "another index is known here: "+b.Sum.String(), http.StatusConflict)
		return
	}
	host := s.Caller(r)
	if !s.enter(host) {
		s.busy(w)
		return
	}
	defer s.leave(host)
	p, over, status := s.choose(&a, b, host)
	if status != 0 {
		if status == http.StatusServiceUnavailable {
			s.busy(w)
		} else {
			http.Error(w, "the piece is not here", status)
		}
		return
	}
	err = s.send(w, r, b, p)
	over(err == nil)
	if err != nil && r.Context().Err() == nil && !errors.Is(err, errGone) {
		s.Log.Error("chunks for another host", "digest", b.Layout.File, "host", host, "error", err)
	}
}

func (s *Server) busy(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) }

// enter takes a slot.
func (s *Server) enter(host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]int{}
	}
	if s.giving >= s.Slots || s.by[host] >= s.EachOne {
		return false
	}
	s.giving++
	s.by[host]++
	return true
}

func (s *Server) leave(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giving--
	if s.by[host]--; s.by[host] == 0 {
		delete(s.by, host)
	}
}

// choose returns which of the pieces that are asked for is given, or the status of the answer. over is called at its
// end.
func (s *Server) choose(a *ask, b *Blob, host string) (p askPiece, over func(whole bool), status int) {
	if !s.Source {
		for _, p := range a.Pieces {
			if b.Held.Has(p.Piece) {
				return p, func(bool) {}, 0
			}
		}
		return p, nil, http.StatusGone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, h := time.Now(), s.handOf(b)
	var wanted []int
	for _, p := range a.Pieces {
		wanted = append(wanted, p.Piece)
	}
	n, ok := h.Pick(host, wanted, a.Alone, now)
	if !ok {
		return p, nil, http.StatusServiceUnavailable
	}
	for _, p = range a.Pieces {
		if p.Piece == n {
			break
		}
	}
	return p, func(whole bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.Over(n, whole, time.Now())
	}, 0
}

// handOf returns what was given of a file. The server is locked.
func (s *Server) handOf(b *Blob) *hand {
	if s.hands == nil {
		s.hands = map[chunk.Sum]*hand{}
	}
	now := time.Now()
	for digest, h := range s.hands {
		if now.Sub(h.used) > handAge {
			delete(s.hands, digest)
		}
	}
	h := s.hands[b.Layout.File]
	if h == nil || h.index != b.Sum {
		h = &hand{Handout: swarm.NewHandout(len(b.Layout.Pieces)), index: b.Sum}
		s.hands[b.Layout.File] = h
	}
	h.used = now
	return h
}

// errGone is of who asked, and takes no more.
var errGone = errors.New("the other end has gone")

// send writes the chunks of a piece.
func (s *Server) send(w http.ResponseWriter, r *http.Request, b *Blob, p askPiece) error {
	w.Header().Set(pieceHeader, strconv.Itoa(p.Piece))
	w.Header().Set("Content-Type", "application/octet-stream")
	paced := &pacedWriter{s.Rate, r.Context(), w, http.NewResponseController(w)}
	data := make([]byte, chunk.MaxSize)
	return chunk.Pack(paced, func(to io.Writer) error {
		for _, i := range p.Chunks {
			c := b.Layout.Chunks[i]
			if _, err := b.ReadAt(data[:c.Size], b.Layout.Offsets[i]); err != nil {
				return fmt.Errorf("reading chunk %d: %w", i, err)
			}
			if _, err := to.Write(data[:c.Size]); err != nil {
				return err
			}
			s.count(b.Layout.File, int(c.Size))
		}
		return nil
	})
}

// pacedWriter writes no faster than a rate, and no longer than slowest at a time.
type pacedWriter struct {
	rate    *Rate
	ctx     context.Context
	to      io.Writer
	control *http.ResponseController
}

func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), 64<<10)]
		if err = p.rate.Wait(p.ctx, len(part)); err == nil {
			err = p.control.SetWriteDeadline(time.Now().Add(slowest))
		}
		wrote := 0
		if err == nil {
			wrote, err = p.to.Write(part)
		}
		n, b = n+wrote, b[wrote:]
	}
	if err != nil {
		err = errors.Join(errGone, err)
	}
	return n, err
}

func (s *Server) count(digest chunk.Sum, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[chunk.Sum]int64{}
	}
	s.sent[digest] += int64(n)
}

// Sent returns how many bytes of a file were given since the start, as they are in the file.
func (s *Server) Sent(digest chunk.Sum) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[digest]
}
