package transfer

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
)

// SourceOptions is what a source is made of.
type SourceOptions struct {
	Dir string // where indexes are kept
	// Open opens a file that the server has. An error of kind farm.NotFound: it has not.
	Open   func(digest chunk.Sum) (*os.File, error)
	Caller func(*http.Request) string
	Rate   *Rate
	Log    *slog.Logger
}

// Source is the server's side: it gives files to hosts, and tells them who else does.
type Source struct {
	SourceOptions
	Tracker Tracker
	Server  *Server

	one     sync.Mutex // held while a file is cut: one at a time
	mu      sync.Mutex
	cutting map[chunk.Sum]bool
	failed  map[chunk.Sum]cutError
	indexes map[chunk.Sum]*Indexed
	refused map[string]string // addresses of hosts that others are not told, by host
}

// cutError is why a file could not be cut. It holds for a while.
type cutError struct {
	error
	until time.Time
}

const (
	sourceSlots = 8
	sourceEach  = 2
	cutAgain    = time.Minute
	locateEvery = 5.0 // seconds, of a host that fetches
	mostWanted  = 256 // files, of one host at a time
)

// NewSource returns a source that keeps its indexes in a directory.
func NewSource(o SourceOptions) (*Source, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &Source{SourceOptions: o, cutting: map[chunk.Sum]bool{}, failed: map[chunk.Sum]cutError{},
		indexes: map[chunk.Sum]*Indexed{}, refused: map[string]string{}}
	s.Server = &Server{Open: s.open, Caller: o.Caller, Rate: o.Rate, Slots: sourceSlots, EachOne: sourceEach,
		Source: true, Log: o.Log}
	return s, nil
}

// Locate takes over what a host holds and wants, and returns where what it wants is to be had. from is where the report
// came from: others are told of no other address.
func (s *Source) Locate(host string, from netip.Addr, r fleet.TransferReport, now time.Time) (
	a fleet.TransferAnswer, err error) {
	if err := checkReport(r); err != nil {
		return a, badReport(err)
	}
	var has []chunk.Sum
	for _, text := range append(r.Holds, r.Wants...) {
		digest, err := chunk.ParseSum(text)
		if err != nil {
			return a, badReport(err)
		}
		has = append(has, digest)
	}
	s.Tracker.Has(host, s.given(host, from, r.Address), has, now)
	a.Next = HoldsEvery.Seconds()
	for _, digest := range has[len(r.Holds):] {
		a.Next = locateEvery
		t := fleet.Transfer{Digest: digest.String()}
		x, err := s.index(digest)
		if err != nil {
			t.Problem = err.Error()
			t.Missing = farm.IsKind(err, farm.NotFound)
		} else if x != nil {
			t.Index = x.Sum.String()
		}
		for _, p := range s.Tracker.Peers(digest, host, now) {
			t.Peers = append(t.Peers, fleet.TransferPeer(p))
		}
		a.Transfers = append(a.Transfers, t)
	}
	return a, nil
}

// given returns the address of a host that others are told: its own, and "" for any other. A host could have all others
// connect to what it likes. An address that is not told is logged once.
func (s *Source) given(host string, from netip.Addr, address string) string {
	at, err := netip.ParseAddrPort(address)
	own := err == nil && at.Addr().Unmap().WithZone("") == from.Unmap().WithZone("")
	s.mu.Lock()
	defer s.mu.Unlock()
	if own || address == "" {
		delete(s.refused, host)
		return address
	}
	if s.refused[host] != address {
		s.refused[host] = address
		s.Log.Warn("a host gives images at an address that its reports do not come from; others are not told of it",
			"host", host, "address", address, "from", from.String(), "try", "see [transfer] listen in agent.toml")
	}
	return ""
}

// checkReport refuses what no host says: others connect to the address.
func checkReport(r fleet.TransferReport) error {
	if r.Address != "" {
		if _, err := netip.ParseAddrPort(r.Address); err != nil {
			return err
		}
	}
	if len(r.Wants) > mostWanted || len(r.Holds) > mostFiles {
		return fmt.Errorf("%d wanted and %d held images", len(r.Wants), len(r.Holds))
	}
	return nil
}

func badReport(err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: err.Error(),
		Hint: "docs/reference/openapi.json says what this route takes"}
}

// open returns a file of the server for its chunks.
func (s *Source) open(digest chunk.Sum) (*Blob, error) {
	s.mu.Lock()
	x := s.indexes[digest]
	s.mu.Unlock()
	var err error
	if x == nil {
		x, err = s.index(digest)
	}
	var f *os.File
	if x != nil {
		f, err = s.Open(digest)
	}
	switch {
	case farm.IsKind(err, farm.NotFound) || err == nil && f == nil:
		return nil, errUnknown(digest)
	case err != nil:
		return nil, err
	}
	return &Blob{x, f, f, x.all()}, nil
}

func (s *Source) indexName(digest chunk.Sum) string {
	return filepath.Join(s.Dir, digest.String()[len("sha256:"):])
}

// index returns that of a file; nil: it is being cut.
func (s *Source) index(digest chunk.Sum) (*Indexed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.failed[digest]; e.error != nil && time.Now().Before(e.until) {
		return nil, e.error
	}
	if s.cutting[digest] {
		return nil, nil
	}
	f, err := s.Open(digest) // it may have been removed
	if err != nil {
		delete(s.indexes, digest)
		return nil, err
	}
	if x := s.indexes[digest]; x != nil {
		return x, f.Close()
	}
	text, err := os.ReadFile(s.indexName(digest))
	if err == nil {
		if x, err := NewIndexed(text); err == nil && x.Layout.File == digest {
			s.remember(x)
			return x, f.Close()
		}
	}
	s.cutting[digest] = true
	go s.cut(digest, f)
	return nil, nil
}

// remember keeps an index in memory. The source is locked.
func (s *Source) remember(x *Indexed) {
	for other := range s.indexes {
		if len(s.indexes) < mostIndexes {
			break
		}
		delete(s.indexes, other)
	}
	s.indexes[x.Layout.File] = x
}

// cut makes the index of a file, once, and finds on the way whether it is what its digest says.
func (s *Source) cut(digest chunk.Sum, f *os.File) {
	defer f.Close()
	s.one.Lock()
	defer s.one.Unlock()
	began := time.Now()
	x, err := chunk.Cut(f)
	if err == nil && x.File != digest {
		err = errMismatch(digest)
	}
	var indexed *Indexed
	if err == nil {
		text := x.Marshal()
		indexed = &Indexed{chunk.Lay(x), sumOf(text), text}
		if err = os.WriteFile(s.indexName(digest)+".new", text, 0o600); err == nil {
			err = os.Rename(s.indexName(digest)+".new", s.indexName(digest))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cutting, digest)
	delete(s.failed, digest)
	if err != nil {
		s.Log.Error("image not cut", "digest", digest, "error", err)
		s.failed[digest] = cutError{err, time.Now().Add(cutAgain)}
		return
	}
	s.remember(indexed)
	s.Log.Info("image cut", "digest", digest, "chunks", len(x.Chunks), "took",
		time.Since(began).Round(time.Millisecond))
	debug.FreeOSMemory()
}
