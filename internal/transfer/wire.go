// Package transfer brings files to hosts in chunks, from hosts that have them and from a source: it fetches, continues
// what was broken off, and gives what is here to others. It believes nobody: every chunk is compared with the index of
// the file, the index with the digest that the server named, and the whole file with its own.
package transfer

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// Codes of transfers; see docs/errors.md.
const (
	CodeStalled  farm.Code = "transfer-stalled"
	CodeUnknown  farm.Code = "transfer-unknown"
	CodeMismatch farm.Code = "transfer-mismatch"
)

// Routes of hosts and servers that give chunks, below a digest:
//
//	GET  /v1/chunks/DIGEST/index   the index
//	GET  /v1/chunks/DIGEST/held    bits: the pieces that are here
//	POST /v1/chunks/DIGEST         an ask: the chunks of one piece, packed
const (
	Route      = "/v1/chunks/"
	RouteIndex = Route + "{digest}/index"
	RouteHeld  = Route + "{digest}/held"
	RoutePiece = Route + "{digest}"
)

const (
	pieceHeader = "Grange-Piece" // which one comes
	heldHeader  = "Grange-Held"  // bits, in base64: what is there by now

	maxAsk  = 1 << 20
	maxHeld = 4 << 10
)

// ask is the body of a request for a piece: the first of several that can be given.
type ask struct {
	Index  string     `json:"index"` // digest of the index that the numbers refer to
	Pieces []askPiece `json:"pieces"`
	Alone  bool       `json:"alone,omitempty"`
}

type askPiece struct {
	Piece  int   `json:"piece"`
	Chunks []int `json:"chunks"` // of it, in order
}

// check reports what is wrong with a request from anybody.
func (a *ask) check(l *chunk.Layout) error {
	if len(a.Pieces) == 0 {
		return fmt.Errorf("no piece is asked for")
	}
	for _, p := range a.Pieces {
		if p.Piece < 0 || p.Piece >= len(l.Pieces) || len(p.Chunks) == 0 {
			return fmt.Errorf("there is no piece %d", p.Piece)
		}
		rest := l.Pieces[p.Piece]
		for _, c := range p.Chunks {
			for len(rest) > 0 && rest[0] < c {
				rest = rest[1:]
			}
			if len(rest) == 0 || rest[0] != c {
				return fmt.Errorf("chunk %d is not in piece %d, or comes twice", c, p.Piece)
			}
			rest = rest[1:]
		}
	}
	return nil
}

func heldOf(h http.Header) swarm.Bits {
	bits, err := base64.StdEncoding.DecodeString(h.Get(heldHeader))
	if err != nil || len(bits) == 0 || len(bits) > maxHeld {
		return nil
	}
	return bits
}

func setHeld(h http.Header, bits swarm.Bits) {
	h.Set(heldHeader, base64.StdEncoding.EncodeToString(bits))
}

// Peer is a host that holds a file or fetches it.
type Peer struct {
	Host    string `json:"host"` // ID
	Address string `json:"address"`
}

// StepTransfer is the step of a transfer in which bytes come.
const StepTransfer = "transfer"

// Progress is how far a transfer has come.
type Progress struct {
	Step        string // what is being done
	Done, Total farm.Bytes
	Note        string // why nothing comes at the moment
}

// Stats are what a transfer brought from where, in bytes of the file.
type Stats struct {
	Here, Peers, Source farm.Bytes
	Received            farm.Bytes // packed, as they came
	Took                time.Duration
}
