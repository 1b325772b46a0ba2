package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// issuer is an authority with its key.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue signs a certificate that lasts two hours; name ends with "CA" for one of an authority.
func (a *issuer) issue(name string, serial int64) *issuer {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	ca := name[len(name)-2:] == "CA"
	template := &x509.Certificate{SerialNumber: big.NewInt(serial),
		Subject: pkix.Name{CommonName: name, Organization: []string{"Grid"}}, IsCA: ca, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if ca {
		template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return &issuer{a.t, cert, key}
}

func newIssuer(t *testing.T, name string) *issuer { return (&issuer{t: t}).issue(name, 1) }

// crl writes a revocation list, valid until a time from now.
func (a *issuer) crl(path string, until time.Duration, asPEM bool, serials ...int64) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: time.Now().Add(-time.Hour),
		NextUpdate: time.Now().Add(until)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(s), RevocationTime: time.Now()})
	}
	text, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err == nil && asPEM {
		text = pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: text})
	}
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func chain(of ...*issuer) (shown []*x509.Certificate) {
	for _, a := range of {
		shown = append(shown, a.cert)
	}
	return shown
}

func codeFor(a *Authenticator, t *testing.T, shown []*x509.Certificate) (string, farm.Code) {
	t.Helper()
	who, err := a.Identify(t.Context(), Shown{Chain: shown})
	own, _ := errors.AsType[*farm.Error](err)
	if own == nil {
		return who.User, ""
	}
	return who.User, own.Code
}

// With two authorities the subject alone is nobody: each of them could sign it. One may be kept to a namespace.
func TestAuthorities(t *testing.T) {
	strong, weak := newIssuer(t, "Strong CA"), newIssuer(t, "Weak CA")
	grid := func(text string) []farm.Subject {
		s, err := farm.ParseSubject(text)
		if err != nil {
			t.Fatal(err)
		}
		return []farm.Subject{s}
	}
	users := people{"strong:CN=Ann,O=Grid": "ann", "weak:CN=Bob,O=Grid": "bob", "CN=Cy,O=Grid": "cy"}
	both := New(Options{Directory: users,
		People: NewPeople(Authority{Name: "strong", Roots: chain(strong)},
			Authority{Name: "weak", Roots: chain(weak)})})
	only := New(Options{Directory: users, People: NewPeople(Authority{Name: "strong", Roots: chain(strong)})})
	kept := New(Options{Directory: users,
		People: NewPeople(Authority{Name: "weak", Roots: chain(weak), Subjects: grid("O=Weak")})})
	own := New(Options{Directory: people{"CN=Bob,O=Grid": "bob"},
		People: NewPeople(Authority{Name: "weak", Roots: chain(weak),
			Subjects: append(grid("O=Weak"), grid("O=Grid")...)})})
	for _, c := range []struct {
		name  string
		by    *Authenticator
		shown *issuer
		want  string
	}{
		{"hers", both, strong.issue("Ann", 5), "ann"},
		{"hers, by another authority", both, weak.issue("Ann", 5), ""},
		{"his", both, weak.issue("Bob", 5), "bob"},
		{"without an authority, of several", both, strong.issue("Cy", 5), ""},
		{"without an authority, of one", only, strong.issue("Cy", 5), "cy"},
		{"of an authority that is not there", only, weak.issue("Cy", 5), ""},
		{"beyond the authority's namespace", kept, weak.issue("Bob", 5), ""},
		{"within it", own, weak.issue("Bob", 5), "bob"},
	} {
		if who, code := codeFor(c.by, t, chain(c.shown)); who != c.want || (code == "") != (c.want != "") {
			t.Errorf("%s: %q %s", c.name, who, code)
		}
	}
}

// A certificate that was revoked, and a list that has ended, is not there, or is another's.
func TestRevocationLists(t *testing.T) {
	root := newIssuer(t, "Root CA")
	mid := root.issue("Mid CA", 7)
	ann, bob := mid.issue("Ann", 11), mid.issue("Bob", 12)
	below, top := filepath.Join(t.TempDir(), "mid.crl"), filepath.Join(t.TempDir(), "root.crl")
	mid.crl(below, time.Hour, true, 12, 999)
	root.crl(top, time.Hour, false)
	lists, err := pki.ReadRevocations(slog.New(slog.DiscardHandler), below, top)
	if err != nil {
		t.Fatal(err)
	}
	trusted := NewPeople(Authority{Name: "grid", Roots: chain(root), Revoked: lists})
	a := New(Options{Directory: people{"CN=Ann,O=Grid": "ann", "CN=Bob,O=Grid": "bob"}, People: trusted})
	says := func(what string, who *issuer, want farm.Code) {
		t.Helper()
		trusted.Reread()
		if _, code := codeFor(a, t, chain(who, mid)); code != want {
			t.Errorf("%s: %q, want %q", what, code, want)
		}
	}
	says("not revoked", ann, "")
	says("revoked", bob, pki.CodeRevoked)
	mid.crl(below, time.Hour, false, 11)
	says("revoked since", ann, pki.CodeRevoked)
	says("not revoked any more", bob, "")
	mid.crl(below, -time.Minute, true)
	says("by a list that ended", ann, pki.CodeCRLOld)
	forged := newIssuer(t, "Mid CA")
	forged.crl(below, time.Hour, true)
	says("by a list that another of the name has signed", ann, pki.CodeCRLOld)
	mid.crl(below, time.Hour, true)
	says("by a good one again", ann, "")
	root.crl(top, time.Hour, true, 7)
	says("its authority is revoked", ann, pki.CodeRevoked)
	root.crl(top, -time.Minute, true)
	says("the authority's list ended", ann, pki.CodeCRLOld)
	root.crl(top, time.Hour, true)
	says("all good", ann, "")
	if err := os.WriteFile(below, []byte("half of a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	says("a file that cannot be read: the list before counts", ann, "")
	if err := os.Remove(below); err != nil {
		t.Fatal(err)
	}
	says("a file that is gone: the list before counts", ann, "")
	if _, err := pki.ReadRevocations(slog.New(slog.DiscardHandler), below); err == nil {
		t.Error("a server starts without its list")
	}
}

// A list is read again when its file changes, without anybody saying so.
func TestRevocationListChanges(t *testing.T) {
	root := newIssuer(t, "Root CA")
	file := filepath.Join(t.TempDir(), "crl")
	root.crl(file, time.Hour, true)
	lists, err := pki.ReadRevocations(slog.New(slog.DiscardHandler), file)
	if err != nil {
		t.Fatal(err)
	}
	ann := chain(root.issue("Ann", 11), root)
	if err := lists.Check(ann, time.Now()); err != nil {
		t.Fatal(err)
	}
	root.crl(file, time.Hour, true, 11)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for lists.Check(ann, time.Now()) == nil {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it was not read again")
		case <-time.After(time.Minute):
			t.Fatal("it was not read again")
		}
	}
}
