package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, id string) *x509.Certificate {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.IssueHost(id, csr, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.PEM, key)
	if err != nil {
		t.Fatal(err)
	}
	if issued.Serial != Serial(pair.Leaf) || !issued.Expires.Equal(pair.Leaf.NotAfter) {
		t.Errorf("told %s until %v, is %s until %v", issued.Serial, issued.Expires, Serial(pair.Leaf),
			pair.Leaf.NotAfter)
	}
	return pair.Leaf
}

func codeOf(err error) farm.Code {
	own := new(farm.Error)
	errors.As(err, &own)
	return own.Code
}

func TestAuthorityIsKept(t *testing.T) {
	ca := newCA(t)
	seal := Seal{1, 2, 3}
	text, err := CAs{Present: ca}.Marshal(seal)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ParseCAs(text, seal)
	if err != nil || kept.Next != nil || kept.Present.Fingerprint() != ca.Fingerprint() {
		t.Fatal(err)
	}
	again := kept.Present
	if p, err := NewAuthorities([]*x509.Certificate{ca.Certificate},
		nil).Peer([]*x509.Certificate{issue(t, again, "h")}, now); err != nil || p.ID != "h" {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range []string{"", "{}", `{"certificate":"x","key":"y"}`} {
		if _, err := ParseCAs([]byte(bad), seal); err == nil {
			t.Errorf("%q is an authority", bad)
		}
	}
}

// Of a request nothing counts but its key.
func TestNamesAreOurs(t *testing.T) {
	ca := newCA(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin"}, DNSNames: []string{"server.example.org"}},
		key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.IssueHost("the-id", csr, now)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(issued.PEM)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject.CommonName != "the-id" || len(c.DNSNames) > 0 || c.IsCA || len(c.ExtKeyUsage) != 1 ||
		c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("it says %v %v, authority %v, usage %v", c.Subject, c.DNSNames, c.IsCA, c.ExtKeyUsage)
	}
	if got := c.NotAfter.Sub(c.NotBefore); got != HostLife+backdate {
		t.Errorf("it lasts %v", got)
	}
}

func TestRequestsRefused(t *testing.T) {
	ca := newCA(t)
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(key any) []byte {
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return csr
	}
	good := request(weak)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	broken := bytes.Clone(request(ed))
	broken[len(broken)-1] ^= 1
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this Go makes no short RSA keys: ", err)
	}
	for name, csr := range map[string][]byte{"nothing": nil, "garbage": []byte("x"), "a weak curve": good,
		"another's signature": broken, "short RSA": request(short)} {
		if _, err := ca.IssueHost("h", csr, now); codeOf(err) != CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ca.IssueHost("h", request(ed), now); err != nil {
		t.Errorf("Ed25519: %v", err)
	}
}

func TestPeers(t *testing.T) {
	ours, other, site := newCA(t), newCA(t), newCA(t)
	server, err := ours.IssueServer([]string{"server.example.org", "127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	ofSite := issue(t, site, "wn-1.example.org")
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate)
	host := issue(t, ours, "h")
	for _, tt := range []struct {
		name  string
		site  *Site
		shown []*x509.Certificate
		at    time.Time
		want  Peer
		code  farm.Code
	}{
		{"ours", nil, []*x509.Certificate{host}, now, Peer{ID: "h", Serial: Serial(host), Expires: host.NotAfter}, ""},
		{"an hour back", nil, []*x509.Certificate{host}, now.Add(-59 * time.Minute),
			Peer{ID: "h", Serial: Serial(host), Expires: host.NotAfter}, ""},
		{"nothing shown", nil, nil, now, Peer{}, CodeNoHostCert},
		{"not yet", nil, []*x509.Certificate{host}, now.Add(-25 * time.Hour), Peer{}, CodeCertTime},
		{"no more", nil, []*x509.Certificate{host}, now.Add(HostLife + time.Second), Peer{}, CodeCertTime},
		{"another fleet's", nil, []*x509.Certificate{issue(t, other, "h")}, now, Peer{}, CodeUnknownCert},
		{"a server is no host", nil, []*x509.Certificate{server.Leaf}, now, Peer{}, CodeUnknownCert},
		{"the authority itself", nil, []*x509.Certificate{ours.Certificate}, now, Peer{}, CodeUnknownCert},
		{"the site's, not configured", nil, []*x509.Certificate{ofSite}, now, Peer{}, CodeUnknownCert},
		{"the site's, by common name", &Site{pool, FieldCN}, []*x509.Certificate{ofSite}, now,
			Peer{Name: "wn-1.example.org", Serial: SiteSerial, Expires: ofSite.NotAfter}, ""},
		{"the site's, without that name", &Site{pool, FieldDNS}, []*x509.Certificate{ofSite}, now, Peer{},
			CodeUnknownCert},
		{"ours beside the site's", &Site{pool, FieldCN}, []*x509.Certificate{host}, now,
			Peer{ID: "h", Serial: Serial(host), Expires: host.NotAfter}, ""},
	} {
		got, err := NewAuthorities([]*x509.Certificate{ours.Certificate}, tt.site).Peer(tt.shown, tt.at)
		if got != tt.want || err == nil && tt.code != "" || err != nil && codeOf(err) != tt.code {
			t.Errorf("%s: %+v %v; want %+v %q", tt.name, got, err, tt.want, tt.code)
		}
	}
}

// A host's certificate must not do for a server's.
func TestHostIsNoServer(t *testing.T) {
	ca := newCA(t)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	if _, err := issue(t, ca, "h").Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err == nil {
		t.Error("a host's certificate would do for a server")
	}
	server, err := ca.IssueServer([]string{"server.example.org", "192.0.2.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server.example.org", "192.0.2.1"} {
		if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJoinTokens(t *testing.T) {
	ca := newCA(t)
	token := NewJoinToken(ca.Certificate)
	got, err := ParseJoinToken(" " + token.String() + "\n")
	if err != nil || got != token || got.Fingerprint != Fingerprint(ca.Certificate) {
		t.Errorf("%+v %v", got, err)
	}
	if !got.Is(token.Hash()) || got.Is(NewJoinToken(ca.Certificate).Hash()) || got.Is(nil) {
		t.Error("a hash is taken for another's")
	}
	for _, bad := range []string{"", "grange-join-", "grange-join-a-b-c", token.String()[:80], token.String() + "-x",
		strings.Replace(token.String(), joinPrefix, "", 1)} {
		if _, err := ParseJoinToken(bad); codeOf(err) != CodeBadJoin || bad != "" && len(bad) > 20 &&
			strings.Contains(err.Error(), token.Secret) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
