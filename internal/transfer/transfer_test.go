package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

func TestAlone(t *testing.T) {
	l, file := newLab(t), content(1, 8<<20)
	l.add(file)
	s, err := l.host("a", nil).fetch(t.Context(), file)
	if err != nil || s.Peers != 0 || s.Source == 0 || s.Source >= 8<<20 || s.Received >= s.Source {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestMany: hosts that begin together get most of it from each other.
func TestMany(t *testing.T) {
	const hosts = 12
	l, file := newLab(t), content(2, 16<<20)
	digest := l.add(file)
	var all sync.WaitGroup
	for n := range hosts {
		h := l.host(fmt.Sprint(n), nil)
		all.Go(func() {
			if _, err := h.fetch(t.Context(), file); err != nil {
				t.Error(err)
			}
			if n%2 == 0 { // the others remove it at once
				h.has(file)
				h.announce()
			}
		})
	}
	all.Wait()
	x, _ := l.source.index(digest)
	if sent := l.source.Server.Sent(digest); sent > 2*x.Layout.Bytes {
		t.Errorf("the source sent %d bytes of %d", sent, x.Layout.Bytes)
	}
}

// TestNextVersion: of another version only what is new comes, also where the old one has no index yet.
func TestNextVersion(t *testing.T) {
	l, old := newLab(t), content(3, 12<<20)
	next := append(append(append([]byte{}, old[:3<<20]...), content(4, 1<<20)...), old[3<<20+777:]...)
	l.add(next)
	h := l.host("a", nil)
	h.has(old)
	s, err := h.fetch(t.Context(), next)
	if err != nil || s.Source > 2<<20 {
		t.Errorf("%+v, %v", s, err)
	}
	// The old one is damaged on the disk: what is wrong there comes from the source.
	damaged := l.host("b", nil)
	damaged.has(old)
	digest := chunk.Sum(sha256.Sum256(old))
	if x := damaged.cutted(t, digest); x == nil {
		t.Fatal("no index")
	}
	f, err := os.OpenFile(damaged.files()[0].Path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 2<<20), 6<<20)
	}
	if err = errors.Join(err, f.Truncate(11<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err := damaged.fetch(t.Context(), next); err != nil || s.Source < 1<<20 {
		t.Errorf("%+v, %v", s, err)
	}
}

// cutted makes the index of a file that the host has.
func (h *testHost) cutted(t *testing.T, digest chunk.Sum) *Indexed {
	x := &transfer{Fetcher: h.Fetcher, changed: make(chan struct{})}
	for _, f := range h.files() {
		if f.Sum == digest {
			return x.cut(t.Context(), f)
		}
	}
	return nil
}

// TestPeersAlone: with the source away, hosts get it from those who have it.
func TestPeersAlone(t *testing.T) {
	l, file := newLab(t), content(5, 6<<20)
	digest := l.add(file)
	a, b := l.host("a", nil), l.host("b", nil)
	if _, err := a.fetch(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	a.has(file)
	if err := a.Forget(digest); err != nil {
		t.Fatal(err)
	}
	a.announce()
	sent := l.source.Server.Sent(digest)
	// b begins while the server still answers, and the source breaks off.
	b.Source = requester{"http://127.0.0.1:1", "b"}
	s, err := b.fetch(t.Context(), file)
	if err != nil || s.Source != 0 || l.source.Server.Sent(digest) != sent {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestResume: whatever a run left, the next one brings what is missing, and no more.
func TestResume(t *testing.T) {
	l, file := newLab(t), content(6, 12<<20)
	digest := l.add(file)
	h := l.host("a", func(o *Options) { o.Rate = NewRate(6 << 20) })
	ctx, cancel := context.WithCancel(t.Context())
	_, err := h.Fetch(ctx, digest, func(p Progress) {
		if p.Step == "transfer" && p.Done > 3<<20 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// A power loss left zeros where data should be, and the server is away at first.
	data := filepath.Join(h.Dir, partialName(digest), dataFile)
	f, err := os.OpenFile(data, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 100<<10), 1<<20)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	l.setAway(true)
	time.AfterFunc(time.Second, func() { l.setAway(false) })
	next := h.again(nil)
	s, err := next.fetch(t.Context(), file)
	if err != nil || s.Here < 2<<20 {
		t.Errorf("%+v, %v", s, err)
	}
	// All of it is here: nobody is asked.
	l.setAway(true)
	if s, err := next.again(nil).fetch(t.Context(), file); err != nil || s.Source != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// again is the host after a restart of its agent.
func (h *testHost) again(change func(*Options)) *testHost {
	return h.lab.host(h.name, func(o *Options) {
		o.Dir = h.Dir
		if change != nil {
			change(o)
		}
	})
}

// TestDamagedState: whatever lies in the directory of a transfer, it is not believed.
func TestDamagedState(t *testing.T) {
	l, file := newLab(t), content(7, 2<<20)
	digest := l.add(file)
	other, err := chunk.Cut(&zeros{n: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"index cut off":     {indexFile: "grange-chunks 1\n"},
		"another's index":   {indexFile: string(other.Marshal())},
		"peers are no text": {peersFile: "{"},
		"a longer file":     {dataFile: string(content(8, 5<<20))},
	} {
		t.Run(name, func(t *testing.T) {
			h := l.host("a", nil)
			dir := filepath.Join(h.Dir, partialName(digest))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.fetch(t.Context(), file); err != nil {
				t.Error(err)
			}
		})
	}
}

type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	n := min(len(p), z.n)
	if n == 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	z.n -= n
	return n, nil
}

// TestTwoWaiters: they wait for one transfer; who leaves does not end it for the other.
func TestTwoWaiters(t *testing.T) {
	l, file := newLab(t), content(9, 8<<20)
	digest := l.add(file)
	h := l.host("a", func(o *Options) { o.Rate = NewRate(4 << 20) })
	ctx, cancel := context.WithCancel(t.Context())
	var reports atomic.Int32
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := h.Fetch(ctx, digest, func(p Progress) {
			if p.Done > 1<<20 {
				cancel()
			}
		}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for range 3 {
		all.Go(func() {
			f, err := h.Fetch(t.Context(), digest, func(Progress) { reports.Add(1) })
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	all.Wait()
	x, _ := l.source.index(digest)
	if sent := l.source.Server.Sent(digest); sent != x.Layout.Bytes {
		t.Errorf("the source sent %d bytes of %d", sent, x.Layout.Bytes)
	}
	if reports.Load() < 9 {
		t.Errorf("three who wait got %d reports", reports.Load())
	}
}

// TestBadPeers: whatever a peer does, the file comes, and is what it should be.
func TestBadPeers(t *testing.T) {
	l, file := newLab(t), content(10, 6<<20)
	digest := l.add(file)
	good := &Server{Open: l.source.open, Caller: callerOf, Slots: 100, EachOne: 100, Log: testLog(t)}
	pieces := http.MethodPost
	cases := map[string]http.HandlerFunc{
		"lies in every byte": func(w http.ResponseWriter, r *http.Request) {
			good.ServeHTTP(&spoiled{ResponseWriter: w}, r)
		},
		"sends other chunks, well packed": func(w http.ResponseWriter, r *http.Request) {
			if r.Method != pieces {
				good.ServeHTTP(w, r)
				return
			}
			recorded := httptest.NewRecorder()
			good.ServeHTTP(recorded, r)
			w.Header().Set(pieceHeader, recorded.Header().Get(pieceHeader))
			chunk.Pack(w, func(to io.Writer) error { _, err := to.Write(make([]byte, 4<<20)); return err })
		},
		"never answers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"stops half-way": func(w http.ResponseWriter, r *http.Request) {
			good.ServeHTTP(&cutOff{ResponseWriter: w, left: 50_000}, r)
		},
		"sends without end": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == pieces {
				w.Header().Set(pieceHeader, "3")
			}
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"says that it has what it has not": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == pieces {
				w.WriteHeader(http.StatusGone)
				return
			}
			good.ServeHTTP(w, r)
		},
		"answers without sense": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(pieceHeader, "-7")
			w.Header().Set(heldHeader, "%%%")
			fmt.Fprint(w, "sense")
		},
		"has a huge header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(heldHeader, string(make([]byte, 1<<20)))
		},
		"sends elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	t.Run("a peer that", func(t *testing.T) {
		for name, bad := range cases {
			t.Run(name, func(t *testing.T) { t.Parallel(); beside(t, l, file, bad) })
		}
	})
	if held := good.Sent(digest); held == 0 {
		t.Error("no bad peer was asked for anything")
	}
}

// beside fetches a file beside a bad peer.
func beside(t *testing.T, l *lab, file []byte, bad http.Handler) {
	h := l.host(t.Name(), nil)
	server := httptest.NewServer(bad)
	defer server.Close()
	defer server.CloseClientConnections()
	locate := h.Locate
	h.Locate = func(ctx context.Context, d chunk.Sum) (Location, error) {
		where, err := locate(ctx, d)
		where.Peers = []Peer{{"bad", server.Listener.Addr().String()}}
		return where, err
	}
	if _, err := h.fetch(t.Context(), file); err != nil {
		t.Error(err)
	}
}

// spoiled turns a bit of all that is sent.
type spoiled struct{ http.ResponseWriter }

func (s *spoiled) Unwrap() http.ResponseWriter { return s.ResponseWriter }
func (s *spoiled) Write(p []byte) (int, error) {
	p = append([]byte{}, p...)
	for i := range p {
		p[i] ^= 1
	}
	return s.ResponseWriter.Write(p)
}

// cutOff hangs up after some bytes.
type cutOff struct {
	http.ResponseWriter
	left int
}

func (c *cutOff) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *cutOff) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

// TestPeerComesBack: one that goes away and comes back is asked again.
func TestPeerComesBack(t *testing.T) {
	s, now := swarm.New(make([]bool, 4), time.Now(), testRandom()), time.Now()
	s.Peer("a", swarm.Bits{0xf})
	one, ok := s.Next(now)
	if !ok || one.Peer != "a" {
		t.Fatal(one, ok)
	}
	s.Done("a", one.Pieces[0], swarm.Away, now)
	if again, _ := s.Next(now); again.Peer != swarm.Source || !again.Alone {
		t.Error("with its only peer away, the host asks", again)
	}
	if again, ok := s.Next(now.Add(time.Minute)); !ok || again.Peer != "a" {
		t.Error("a minute later it asks", again)
	}
}

// TestFullDisk: a file that has no space is refused before anything comes; one whose file system fills meanwhile ends
// with the reason, and goes on from there when there is space again.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	l, file := newLab(t), content(11, 8<<20)
	l.add(file)
	dir := t.TempDir()
	resize := func(flags uintptr, size string) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
	resize(0, "16M")
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	h := l.host("a", func(o *Options) { o.Dir, o.Rate = dir, NewRate(2<<20) })
	if _, err := h.fetch(t.Context(), file); !farm.IsCode(err, farm.CodeDiskFull) {
		t.Error("before:", err)
	}
	resize(syscall.MS_REMOUNT, "200M")
	filled := false
	_, err := h.Fetch(t.Context(), sumOf(file), func(p Progress) {
		if p.Step == StepTransfer && p.Done > 1<<20 && !filled {
			filled = true
			resize(syscall.MS_REMOUNT, "3M")
		}
	})
	if !farm.IsCode(err, farm.CodeDiskFull) {
		t.Error("meanwhile:", err)
	}
	resize(syscall.MS_REMOUNT, "200M")
	if s, err := h.fetch(t.Context(), file); err != nil || s.Here == 0 {
		t.Errorf("with space again: %+v, %v", s, err)
	}
}

func TestUnknown(t *testing.T) {
	l := newLab(t)
	h := l.host("a", nil)
	if _, err := h.fetch(t.Context(), content(12, 1000)); !farm.IsCode(err, CodeUnknown) {
		t.Error(err)
	}
}

// TestStalled: with nobody there the caller gets a reason, in the end.
func TestStalled(t *testing.T) {
	l, file := newLab(t), content(13, 1<<20)
	l.add(file)
	h := l.host("a", func(o *Options) {
		o.Stalled, o.Source = 3*time.Second, requester{"http://127.0.0.1:1", "a"}
	})
	_, err := h.fetch(t.Context(), file)
	if !farm.IsCode(err, CodeStalled) || !farm.IsKind(err, farm.Unavailable) {
		t.Error(err)
	}
}

// TestMismatch: all chunks fit an index that is not the file's.
func TestMismatch(t *testing.T) {
	l, file := newLab(t), content(14, 1<<20)
	digest := l.add(file)
	x, err := l.source.index(digest)
	if err != nil {
		t.Fatal(err)
	}
	other := *x.Layout.Index
	other.Chunks = append([]chunk.Chunk{}, other.Chunks...)
	last := len(other.Chunks) - 1
	other.Chunks[0], other.Chunks[last] = other.Chunks[last], other.Chunks[0]
	text := other.Marshal()
	wrong, err := NewIndexed(text)
	if err != nil {
		t.Fatal(err)
	}
	first, end := int64(x.Layout.Chunks[0].Size), x.Layout.Offsets[last]
	swapped := slices.Concat(file[end:], file[first:end], file[:first])
	name := filepath.Join(t.TempDir(), "swapped")
	if err := os.WriteFile(name, swapped, 0o600); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.files[digest] = name
	l.mu.Unlock()
	l.source.mu.Lock()
	l.source.indexes[digest] = wrong
	l.source.mu.Unlock()
	h := l.host("a", nil)
	if _, err := h.fetch(t.Context(), file); !farm.IsCode(err, CodeMismatch) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(h.Dir, partialName(digest))); !os.IsNotExist(err) {
		t.Error("what is wrong is kept:", err)
	}
}
