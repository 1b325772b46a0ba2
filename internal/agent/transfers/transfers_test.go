package transfers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/vmimage"
)

// member is a host by its certificate, as uplink.Peers has it.
type member struct {
	pair tls.Certificate
	own  []*x509.Certificate
}

func (m member) TLS() (*tls.Config, error) { return pki.PeerTLS(m.pair, m.own), nil }
func (m member) Host(s tls.ConnectionState) (string, error) {
	return pki.PeerHost(s, m.own, time.Now())
}
func (m member) Address() (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }

// source is the server, by a host that asks it.
type source struct {
	*transfer.Source
	url, host string
}

func (s source) Do(ctx context.Context, method, route string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Test-Host", s.host)
	return http.DefaultClient.Do(r)
}

func (s source) Transfers(_ context.Context, r fleet.TransferReport) (fleet.TransferAnswer, error) {
	return s.Locate(s.host, netip.MustParseAddr("127.0.0.1"), r, time.Now())
}

type lab struct {
	*testing.T
	server *transfer.Source
	url    string
	file   []byte
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, file: make([]byte, 3<<20)}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range l.file[1<<20:] {
		l.file[i] = byte(r.Uint32())
	}
	l.file[510], l.file[511] = 0x55, 0xaa // as a disk has it
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, l.file, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	l.server, err = transfer.NewSource(transfer.SourceOptions{Dir: t.TempDir(), Log: testLog(t),
		Caller: func(r *http.Request) string { return r.Header.Get("Test-Host") },
		Open: func(digest chunk.Sum) (*os.File, error) {
			if digest == sha256.Sum256(l.file) {
				return os.Open(name)
			}
			return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage, Message: "none"}
		}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(l.server.Server)
	t.Cleanup(s.Close)
	l.url = s.URL
	return l
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// host starts a host with a certificate.
func (l *lab) host(m member, id string) testHost {
	images, err := vmimage.Open(l.TempDir())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { images.Close() })
	h, err := New(Options{Dir: l.TempDir(), Files: FilesOf(images), Peers: m, Server: source{l.server, l.url, id},
		Config: func() Settings { return Settings{Listen: "127.0.0.1:0"} }, Log: testLog(l.T)})
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); h.Run(ctx) }()
	l.Cleanup(func() { cancel(); <-ended })
	for h.at() == "" {
		time.Sleep(time.Millisecond)
	}
	return testHost{h, images}
}

// testHost is a host with its images.
type testHost struct {
	*Transfers
	images *vmimage.Store
}

func (t *Transfers) at() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.address
}

// fetch fetches the lab's file and imports it, as an agent does.
func (l *lab) fetch(h testHost) {
	l.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256(l.file))
	f, err := h.Fetch(l.Context(), sum, func(int64, int64, string) {})
	if err != nil {
		l.Fatal(err)
	}
	defer f.Close()
	if _, err := h.images.Import(l.Context(), "image", f.Name(), nil); err != nil {
		l.Fatal(err)
	}
	if err := h.Forget(sum); err != nil {
		l.Fatal(err)
	}
}

// TestFromImportedImage: what a host has imported it gives to others, by their certificates alone.
func TestFromImportedImage(t *testing.T) {
	l := newLab(t)
	ca := newCA(t)
	a := l.host(ca.member(t, "a"), "a")
	l.fetch(a)
	digest := chunk.Sum(sha256.Sum256(l.file))
	sent := l.server.Server.Sent(digest)
	if sent == 0 {
		t.Fatal("the first host got nothing from the server")
	}
	for len(l.server.Tracker.Peers(digest, "b", time.Now())) == 0 {
		time.Sleep(time.Millisecond)
	}
	l.fetch(l.host(ca.member(t, "b"), "b"))
	if again := l.server.Server.Sent(digest); again != sent {
		t.Errorf("the second host got %d bytes from the server", again-sent)
	}
	// Another fleet's host, and one who is not whom the server named, get no further than the handshake.
	for name, m := range map[string]member{"of another fleet": newCA(t).member(t, "b"), "nobody": {own: ca.own}} {
		c, _ := m.TLS()
		conn, err := tls.Dial("tcp", a.at(), c)
		if err == nil { // TLS 1.3: the client learns it at its first read
			_, err = io.ReadAll(conn)
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s is let in", name)
		}
	}
	b := l.host(ca.member(t, "c"), "c")
	if conn, err := b.dial(t.Context(), transfer.Peer{Host: "another", Address: a.at()}); err == nil {
		conn.Close()
		t.Error("a host is taken for another")
	}
}

// TestBoundedConnections: one address takes few connections, and what it gives back others get.
func TestBoundedConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := &boundedListener{Listener: inner, of: map[string]int{}}
	for range mostOfOne {
		if !l.enter("10.0.0.1") {
			t.Fatal("too few")
		}
	}
	if l.enter("10.0.0.1") || !l.enter("10.0.0.2") {
		t.Error("not bounded by address")
	}
	l.leave("10.0.0.1")
	if !l.enter("10.0.0.1") {
		t.Error("what was given back is not there")
	}
}

// testCA is a fleet's authority.
type testCA struct {
	*pki.CA
	own []*x509.Certificate
}

func newCA(t *testing.T) testCA {
	ca, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return testCA{ca, []*x509.Certificate{ca.Certificate}}
}

// member issues a certificate for a host.
func (c testCA) member(t *testing.T, id string) member {
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := c.IssueHost(id, csr, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.PEM, key)
	if err != nil {
		t.Fatal(err)
	}
	return member{pair, c.own}
}
