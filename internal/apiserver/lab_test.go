package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
)

// lab is a server that answers on a unix socket and by TLS, with a cell, a host, a project and some people: ann (member
// of atlas, by certificate), root (by the socket).
type lab struct {
	t      *testing.T
	store  *store.Store
	server *server.Server
	api    *API
	dir    string
	socket string
	url    string
	people *authority
	bounds *connections       // of the port
	stop   context.CancelFunc // ends the server
}

func newLab(t *testing.T) *lab {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	l := &lab{t: t, store: st, dir: t.TempDir(), people: newAuthority(t, "People's CA")}
	l.server = server.New(server.Options{Store: st, Log: log, URL: "https://server.example.org:7480", Version: "test",
		CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), ImageDir: filepath.Join(t.TempDir(), "images"),
		ImageSpace: 32 * farm.MiB})
	l.api = New(Options{Server: l.server, Log: log, Version: "test", KeepAlive: 50 * time.Millisecond,
		Authn: authn.New(authn.Options{Directory: l.server.Directory(),
			People: authn.NewPeople(authn.Authority{Name: "grid", Roots: []*x509.Certificate{l.people.cert}})})})
	l.update(func(tx *store.Tx) error {
		return errors.Join(
			tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "atlas"}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 1, Memory: 512 * farm.MiB, Network: farm.NetworkNone}),
			tx.PutUser(farm.User{Name: "ann", Subjects: []string{"CN=Ann,O=Grid"}}),
			tx.PutUser(farm.User{Name: "gone", Subjects: []string{"CN=Gone,O=Grid"}, Disabled: true}),
			tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleMember, Project: "atlas"}),
		)
	})
	l.serve()
	return l
}

func (l *lab) update(do func(*store.Tx) error) {
	l.t.Helper()
	if _, err := l.store.Update(context.Background(), do); err != nil {
		l.t.Fatal(err)
	}
}

// serve runs everything until the test ends.
func (l *lab) serve() {
	l.socket = filepath.Join(l.dir, "server.sock")
	unix, err := ListenSocket(l.socket, 0o666)
	if err != nil {
		l.t.Fatal(err)
	}
	own := newAuthority(l.t, "Server's CA")
	pair := own.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "server"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	own.write(filepath.Join(l.dir, "ca.pem"))
	tcp := listening(l.t, 1000, 100, time.Second)
	l.url, l.bounds = "https://"+tcp.Addr().String(), tcp.all
	secure := tls.NewListener(tcp, TLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }))
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	ended := make(chan error, 2)
	go func() { ended <- l.server.Run(ctx) }()
	go func() { ended <- l.api.Serve(ctx, unix, secure) }()
	l.t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				l.t.Error(err)
			}
		}
		l.store.Close()
	})
}

// client is a client as somebody.
func (l *lab) client(c fleet.Config) *fleet.Client {
	l.t.Helper()
	if strings.HasPrefix(c.Server, "https:") {
		c.CA = filepath.Join(l.dir, "ca.pem")
	}
	client, err := fleet.NewClient(c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(client.Close)
	return client
}

func (l *lab) root() *fleet.Client { return l.client(fleet.Config{Server: "unix://" + l.socket}) }

// person is a client with a certificate.
func (l *lab) person(subject pkix.Name, from *authority) *fleet.Client {
	l.t.Helper()
	cert, key := from.files(l.dir, &x509.Certificate{Subject: subject,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return l.client(fleet.Config{Server: l.url, Certificate: cert, Key: key})
}

func (l *lab) ann() *fleet.Client {
	return l.person(pkix.Name{CommonName: "Ann", Organization: []string{"Grid"}}, l.people)
}

// ask sends one request over the socket, as root, and returns the answer with its body.
func (l *lab) ask(method, path, body string, headers ...string) (*http.Response, string) {
	l.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
		}}
	r, err := http.NewRequestWithContext(l.t.Context(), method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer, string(text)
}

// host does at once what is wanted of it, until ctx ends. The server's own placer gives it VMs.
func (l *lab) host(ctx context.Context) {
	h := farm.Host{ID: "11111111-1111-4111-8111-111111111111", Name: "wn-1", Cell: "east", Enrolled: time.Now(),
		Seen: time.Now(), Facts: farm.Facts{Topology: sim.Hardware{Sockets: 1, Cores: 8,
			Memory: 64 * farm.GiB}.Topology(), Capability: fleet.Capability, Accelerator: "kvm", ScratchFree: farm.TiB,
			Images: []string{"micro"}}}
	l.update(func(tx *store.Tx) error { return tx.InsertHost(h) })
	var revision int64
	for ctx.Err() == nil {
		var err error
		if _, err = l.store.Update(ctx, carryOut); err == nil {
			revision, err = l.store.Wait(ctx, revision)
		}
		if err != nil && ctx.Err() == nil {
			l.t.Error(err)
			return
		}
	}
}

func carryOut(tx *store.Tx) error {
	vms, err := tx.VMs(store.VMFilter{})
	for _, v := range vms {
		now := farm.Observed{State: farm.VMRunning, Since: time.Now(), Boots: v.Wanted.Boots, Builds: v.Wanted.Builds,
			Ready: true}
		switch v.Wanted.Power {
		case farm.PowerDeleted:
			err = errors.Join(err, tx.DeleteVM(v.ID))
			continue
		case farm.PowerOff:
			now.State, now.Ready = farm.VMStopped, false
		}
		if v.Host != "" && (v.Observed.State != now.State || v.Observed.Boots != now.Boots ||
			v.Observed.Builds != now.Builds) {
			err = errors.Join(err, tx.SetVMObserved(v.ID, now))
		}
	}
	return err
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) issue(template *x509.Certificate) tls.Certificate {
	key := newKey(a.t)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) write(file string) {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
		0o600); err != nil {
		a.t.Fatal(err)
	}
}

// files are a certificate and its key as a client reads them.
func (a *authority) files(dir string, template *x509.Certificate) (cert, key string) {
	pair := a.issue(template)
	der, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert-"+rand.Text()+".pem"), filepath.Join(dir, "key-"+rand.Text()+".pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}
