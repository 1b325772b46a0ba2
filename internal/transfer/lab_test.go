package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
)

// content is a file of so many bytes: some of it zeros, some of it twice, some that packs.
func content(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, 0, size+1<<20)
	for len(b) < size {
		part := make([]byte, 1+r.IntN(1<<20))
		switch r.IntN(6) {
		case 0: // zeros
		case 1:
			copy(part, b)
		case 2:
			copy(part, strings.Repeat(fmt.Sprintf("line %d\n", r.Uint64()), len(part)/20))
		default:
			for i := range part {
				part[i] = byte(r.Uint32())
			}
		}
		b = append(b, part...)
	}
	return b[:size]
}

// lab is a source and hosts.
type lab struct {
	t      *testing.T
	source *Source
	files  map[chunk.Sum]string // of the source
	server *httptest.Server
	mu     sync.Mutex
	away   bool // the source
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, files: map[chunk.Sum]string{}}
	var err error
	l.source, err = NewSource(SourceOptions{Dir: t.TempDir(), Log: testLog(t), Caller: callerOf,
		Open: func(digest chunk.Sum) (*os.File, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if name := l.files[digest]; name != "" {
				return os.Open(name)
			}
			return nil, errUnknown(digest)
		}})
	if err != nil {
		t.Fatal(err)
	}
	l.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.isAway() {
			panic(http.ErrAbortHandler)
		}
		l.source.Server.ServeHTTP(w, r)
	}))
	t.Cleanup(l.server.Close)
	return l
}

func (l *lab) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

func (l *lab) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// add gives the source a file.
func (l *lab) add(b []byte) chunk.Sum {
	name := filepath.Join(l.t.TempDir(), "file")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		l.t.Fatal(err)
	}
	digest := chunk.Sum(sha256.Sum256(b))
	l.mu.Lock()
	l.files[digest] = name
	l.mu.Unlock()
	for {
		if x, err := l.source.index(digest); err != nil {
			l.t.Fatal(err)
		} else if x != nil {
			return digest
		}
		time.Sleep(time.Millisecond)
	}
}

func callerOf(r *http.Request) string { return r.Header.Get("Test-Host") }

// testHost is a host that fetches and gives.
type testHost struct {
	*Fetcher
	lab    *lab
	name   string
	server *httptest.Server
	peer   *Server
	mu     sync.Mutex
	whole  []File
}

// host makes a host. change may be nil.
func (l *lab) host(name string, change func(*Options)) *testHost {
	h := &testHost{lab: l, name: name}
	o := Options{Dir: l.t.TempDir(), Source: requester{l.server.URL, name}, Log: testLog(l.t), Dial: dialTest,
		Files: h.files, Stalled: 20 * time.Second}
	o.Locate = LocateBy(func(context.Context) (fleet.TransferAnswer, error) {
		if l.isAway() {
			return fleet.TransferAnswer{}, io.ErrUnexpectedEOF
		}
		a, err := l.source.Locate(name, loopback, h.Report(h.address()), time.Now())
		a.Next = min(a.Next, 1)
		return a, err
	})
	if change != nil {
		change(&o)
	}
	var err error
	if h.Fetcher, err = NewFetcher(o); err != nil {
		l.t.Fatal(err)
	}
	h.peer = &Server{Open: h.Open, Caller: callerOf, Slots: 4, EachOne: 2, Log: testLog(l.t)}
	h.server = httptest.NewServer(h.peer)
	l.t.Cleanup(h.server.Close)
	return h
}

func (h *testHost) address() string { return strings.TrimPrefix(h.server.URL, "http://") }

func (h *testHost) files() []File {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.whole
}

// has lets the host have a file whole, as after an import.
func (h *testHost) has(b []byte) {
	name := filepath.Join(h.lab.t.TempDir(), "whole")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		h.lab.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole = append(h.whole, File{sha256.Sum256(b), int64(len(b)), name})
}

// announce reports to the source what the host holds.
func (h *testHost) announce() {
	if _, err := h.lab.source.Locate(h.name, loopback, h.Report(h.address()), time.Now()); err != nil {
		h.lab.t.Fatal(err)
	}
}

// fetch fetches a file, compares it and returns what came from where.
func (h *testHost) fetch(ctx context.Context, want []byte) (Stats, error) {
	digest := chunk.Sum(sha256.Sum256(want))
	t := h.join(digest)
	defer h.leave(t)
	f, err := h.Fetch(ctx, digest, nil)
	if err != nil {
		return t.stats, err
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want) {
		h.lab.t.Errorf("%s has another file: %d of %d bytes, %v", h.name, len(got), len(want), err)
	}
	return t.stats, nil
}

// requester sends requests to a URL, in a host's name.
type requester struct{ url, host string }

func (r requester) Do(ctx context.Context, method, route string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Test-Host", r.host)
	return http.DefaultClient.Do(request)
}

func dialTest(ctx context.Context, p Peer) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", p.Address)
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func testRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
