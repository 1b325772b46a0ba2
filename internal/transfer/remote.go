package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// Requester sends requests to one party that gives chunks: a peer, or the source.
type Requester interface {
	// Do sends a request to a route, with a body unless it is nil. What comes back is read by the caller, and closed.
	Do(ctx context.Context, method, route string, body []byte) (*http.Response, error)
}

// Bounds of one party's answers. All are far above what a good one needs.
const (
	answerTime = 20 * time.Second // until an answer begins, and for each chunk of it
	pieceTime  = 2 * time.Minute
	indexTime  = 5 * time.Minute
)

// peerClient is a Requester for a peer: connections of its own, few and bounded.
type peerClient struct{ http http.Client }

func newPeerClient(p Peer, dial func(ctx context.Context, p Peer) (net.Conn, error)) *peerClient {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, p) }
	return &peerClient{http.Client{
		Transport: &http.Transport{DialTLSContext: connect, DialContext: connect, MaxConnsPerHost: 2,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 20 * time.Second, ResponseHeaderTimeout: answerTime,
			MaxResponseHeaderBytes: 16 << 10, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (p *peerClient) Do(ctx context.Context, method, route string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://peer"+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return p.http.Do(r)
}

func (p *peerClient) close() { p.http.CloseIdleConnections() }

func sumOf(b []byte) chunk.Sum { return sha256.Sum256(b) }

// statusError is of an answer that is not what was asked for.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("answered %d %s", int(e), http.StatusText(int(e)))
}

// outcome is what an error says of who caused it.
func outcome(err error) swarm.Outcome {
	var status statusError
	switch {
	case err == nil:
		return swarm.Given
	case errors.Is(err, chunk.ErrBadChunk):
		return swarm.Lied
	case errors.Is(err, errSlow):
		return swarm.Slow
	case errors.As(err, &status) && (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests):
		return swarm.Busy
	case errors.As(err, &status) && (status == http.StatusNotFound || status == http.StatusGone):
		return swarm.Lacks
	}
	return swarm.Away
}

// errSlow is of who sends less than one may expect.
var errSlow = errors.New("it sends too slowly")

// read reads a small answer whole.
func read(ctx context.Context, from Requester, route string, most int64, within time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	response, err := from.Do(ctx, http.MethodGet, route, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%w: more than %d bytes", chunk.ErrBadChunk, most)
	}
	return text, err
}

// readIndex reads the index that a digest is of.
func readIndex(ctx context.Context, from Requester, file, index chunk.Sum) (*Indexed, error) {
	text, err := read(ctx, from, Route+file.String()+"/index", chunk.MaxBytes, indexTime)
	if err != nil {
		return nil, err
	}
	if sumOf(text) != index {
		return nil, fmt.Errorf("%w: another index", chunk.ErrBadChunk)
	}
	return NewIndexed(text)
}

func readHeld(ctx context.Context, from Requester, file chunk.Sum) (swarm.Bits, error) {
	bits, err := read(ctx, from, Route+file.String()+"/held", maxHeld, answerTime)
	return bits, err
}

// brought is what came of one request for a piece.
type brought struct {
	piece    int // -1: none
	held     swarm.Bits
	received int64 // bytes, packed
	plain    int64
	err      error
}

// fetchPiece asks for one of some pieces, and puts each chunk that comes. coming is told which piece comes.
func fetchPiece(ctx context.Context, from Requester, l *Indexed, a ask, rate *Rate, coming func(piece int),
	put func(chunk int, data []byte) error) (b brought) {
	b.piece = -1
	body, err := json.Marshal(a)
	if err != nil { // plain data
		panic(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(answerTime, func() { cancel(errSlow) })
	defer idle.Stop()
	whole := time.AfterFunc(pieceTime, func() { cancel(errSlow) })
	defer whole.Stop()
	response, err := from.Do(ctx, http.MethodPost, Route+l.Layout.File.String(), body)
	if err != nil {
		b.err = err // who does not answer at all is away, not slow
		return b
	}
	defer response.Body.Close()
	b.held = heldOf(response.Header)
	if response.StatusCode != http.StatusOK {
		b.err = statusError(response.StatusCode)
		return b
	}
	p, err := pieceOf(response.Header, a.Pieces)
	if err != nil {
		b.err = err
		return b
	}
	b.piece = p.Piece
	coming(p.Piece)
	reader := &ratedReader{ctx: ctx, from: response.Body, rate: rate}
	unpack := chunk.NewUnpacker(reader)
	defer unpack.Close()
	for _, i := range p.Chunks {
		data, err := unpack.Next(l.Layout.Chunks[i])
		if err == nil {
			err = put(i, data)
		}
		b.received = reader.read
		if err != nil {
			if errors.Is(context.Cause(ctx), errSlow) {
				err = errSlow
			}
			b.err = err
			return b
		}
		b.plain += int64(len(data))
		idle.Reset(answerTime)
	}
	io.CopyN(io.Discard, response.Body, 1<<10) // the end, so that the connection can be used again
	return b
}

// pieceOf is the piece that an answer has, which must be one that was asked for.
func pieceOf(h http.Header, asked []askPiece) (askPiece, error) {
	n, err := strconv.Atoi(h.Get(pieceHeader))
	if err == nil {
		for _, p := range asked {
			if p.Piece == n {
				return p, nil
			}
		}
	}
	return askPiece{}, fmt.Errorf("%w: a piece that was not asked for", chunk.ErrBadChunk)
}
