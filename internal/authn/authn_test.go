package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// people is a directory of a few.
type people map[string]string // what is shown → user

func (p people) find(means, shown string) (farm.Identity, error) {
	if user, ok := p[shown]; ok {
		return farm.Identity{User: user, Means: means, Source: shown}, nil
	}
	return farm.Identity{}, notKnown("nobody", "")
}

func (p people) IdentifyToken(_ context.Context, text string) (farm.Identity, error) {
	return p.find("token", text)
}
func (p people) IdentifySession(_ context.Context, text string) (farm.Identity, error) {
	return p.find("session", text)
}
func (p people) IdentifyClaims(_ context.Context, claims farm.Claims) (farm.Identity, error) {
	return p.find("oidc", claims.Issuer+":"+claims.Subject)
}
func (p people) IdentifySubject(_ context.Context, authority, subject string, only bool) (farm.Identity, error) {
	if only {
		return p.find("certificate", subject)
	}
	return p.find("certificate", farm.BindSubject(authority, subject))
}
func (p people) IdentifyUser(_ context.Context, name string) (farm.Identity, error) {
	return p.find("socket", name)
}
func (p people) HostAt(_ context.Context, chain []*x509.Certificate) (farm.Identity, error) {
	return p.find("host", chain[0].Subject.CommonName)
}

// certificate is one of an authority, or of itself.
func certificate(t *testing.T, subject pkix.RDNSequence, parent *x509.Certificate, key *ecdsa.PrivateKey,
	usage x509.ExtKeyUsage, ca bool, until time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), RawSubject: raw, NotBefore: until.Add(-time.Hour),
		NotAfter: until, IsCA: ca, BasicConstraintsValid: ca}
	if !ca {
		template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	}
	if parent == nil {
		parent, key = template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, own
}

var (
	commonName = asn1.ObjectIdentifier{2, 5, 4, 3}
	component  = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
	email      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}
)

func dn(parts ...pkix.AttributeTypeAndValue) pkix.RDNSequence {
	var s pkix.RDNSequence
	for _, p := range parts {
		s = append(s, pkix.RelativeDistinguishedNameSET{p})
	}
	return s
}

func cn(value string) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: commonName, Value: value}
}

// TestSubjects: a subject reads as people write it, and no value can pass for several parts.
func TestSubjects(t *testing.T) {
	dc := func(v string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: component, Value: v}
	}
	for _, c := range []struct {
		subject pkix.RDNSequence
		slashes string // the same as the grid writes it
		want    string // "": none
	}{
		{dn(dc("ch"), dc("example"), cn("Ann")), "/DC=ch/DC=example/CN=Ann", "CN=Ann,DC=example,DC=ch"},
		{dn(cn("Ann, Dr.")), "/CN=Ann, Dr.", `CN=Ann\, Dr.`},
		{dn(dc("ch"), cn("host/wn1.example.ch")), "/DC=ch/CN=host/wn1.example.ch", "CN=host/wn1.example.ch,DC=ch"},
		{dn(cn("Eve,DC=example")), "", `CN=Eve\,DC=example`},
		{dn(pkix.AttributeTypeAndValue{Type: email, Value: "a@b.ch"}), "/Email=a@b.ch", "emailAddress=a@b.ch"},
		{pkix.RDNSequence{{cn("Ann"), dc("ch")}}, "", ""},
		{pkix.RDNSequence{}, "", ""},
	} {
		cert, _ := certificate(t, c.subject, nil, nil, x509.ExtKeyUsageClientAuth, false, time.Now().Add(time.Hour))
		got, err := subjectOf(cert)
		if got.String() != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v: %q, %v; want %q", c.subject, got, err, c.want)
		}
		if c.slashes == "" {
			continue
		}
		if s, err := farm.ParseSubject(c.slashes); err != nil || s.String() != got.String() {
			t.Errorf("%s is %q, %v; the certificate's %q", c.slashes, s, err, got)
		}
	}
}

// TestIdentify: each means, in their order, and what does not hold.
func TestIdentify(t *testing.T) {
	now := time.Now()
	ca, key := certificate(t, dn(cn("CA")), nil, nil, 0, true, now.Add(time.Hour))
	other, otherKey := certificate(t, dn(cn("CA")), nil, nil, 0, true, now.Add(time.Hour))
	person := func(ca *x509.Certificate, key *ecdsa.PrivateKey, usage x509.ExtKeyUsage,
		until time.Time) []*x509.Certificate {
		c, _ := certificate(t, dn(cn("Ann")), ca, key, usage, false, until)
		return []*x509.Certificate{c}
	}
	good := person(ca, key, x509.ExtKeyUsageClientAuth, now.Add(time.Minute))
	a := New(Options{Directory: people{"secret": "bob", "signed in": "eve", "CN=Ann": "ann"},
		People: NewPeople(Authority{Name: "grid", Roots: []*x509.Certificate{ca}})})
	for _, c := range []struct {
		name  string
		shown Shown
		want  string // user; "": not known
	}{
		{"nothing", Shown{}, ""},
		{"a token", Shown{Token: "secret"}, "bob"},
		{"a wrong token", Shown{Token: "x"}, ""},
		{"a certificate", Shown{Chain: good}, "ann"},
		{"a token beside a certificate", Shown{Token: "secret", Chain: good}, "bob"},
		{"a wrong token beside a certificate", Shown{Token: "x", Chain: good}, ""},
		{"a session", Shown{Session: "signed in"}, "eve"},
		{"a session that ended", Shown{Session: "x"}, ""},
		{"a token beside a session", Shown{Token: "secret", Session: "signed in"}, "bob"},
		{"a wrong token beside a session", Shown{Token: "x", Session: "signed in"}, ""},
		{"a session beside a certificate", Shown{Session: "signed in", Chain: good}, "eve"},
		{"a session that ended beside a certificate", Shown{Session: "x", Chain: good}, ""},
		{"another authority of the same name",
			Shown{Chain: person(other, otherKey, x509.ExtKeyUsageClientAuth, now.Add(time.Minute))}, ""},
		{"a server's certificate", Shown{Chain: person(ca, key, x509.ExtKeyUsageServerAuth, now.Add(time.Minute))}, ""},
		{"yesterday's certificate", Shown{Chain: person(ca, key, x509.ExtKeyUsageClientAuth, now.Add(-24*time.Hour))},
			""},
		{"root's socket", Shown{Socket: true, UID: 0}, "root"},
		{"the server's own account", Shown{Socket: true, UID: uint32(os.Getuid())}, "root"},
		{"a uid without an account", Shown{Socket: true, UID: 3999999999}, ""},
		{"a user of another namespace", Shown{Socket: true, UID: overflow}, ""},
		{"a wrong token on root's socket", Shown{Socket: true, Token: "x"}, ""},
	} {
		who, err := a.Identify(t.Context(), c.shown)
		own := new(farm.Error)
		if who.User != c.want || c.want == "" && (!errors.As(err, &own) || own.Code != farm.CodeNotKnown) ||
			c.want != "" && err != nil {
			t.Errorf("%s: %+v, %v", c.name, who, err)
		}
		if who.Root != (who.User == "root") {
			t.Errorf("%s: %+v", c.name, who)
		}
	}
}

// TestTries: an address that fails too often gets another answer, until a moment after its last failure; whoever is
// known never does.
func TestTries(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	a := New(Options{Directory: people{"secret": "bob", "wn1": "wn1"}, Now: func() time.Time { return now }})
	from := func(address, token string) farm.Code {
		_, err := a.Identify(t.Context(), Shown{Address: netip.MustParseAddr(address), Token: token})
		own := new(farm.Error)
		errors.As(err, &own)
		return own.Code
	}
	for i := range maxTries {
		if code := from("192.0.2.1", "x"); code != farm.CodeNotKnown {
			t.Fatalf("try %d: %s", i, code)
		}
	}
	host, _ := certificate(t, dn(cn("wn1")), nil, nil, x509.ExtKeyUsageClientAuth, false, now.Add(time.Hour))
	for i := range 5000 {
		if code := from("192.0.2.1", "x"); code != farm.CodeTooManyTries {
			t.Fatalf("try %d: %q", i, code)
		}
		if code := from("192.0.2.1", "secret"); code != "" {
			t.Fatalf("a valid token after %d wrong ones: %q", i, code)
		}
		if _, err := a.IdentifyHost(t.Context(),
			Shown{Address: netip.MustParseAddr("192.0.2.1"), Chain: []*x509.Certificate{host}}); err != nil {
			t.Fatalf("a host after %d wrong tokens: %v", i, err)
		}
	}
	if code := from("192.0.2.2", "x"); code != farm.CodeNotKnown {
		t.Errorf("another address: %s", code)
	}
	now = now.Add(2 * tryBack)
	if code := from("192.0.2.1", "x"); code != farm.CodeNotKnown {
		t.Errorf("a moment later: %s", code)
	}
	for i := range maxTries + 1 {
		from("2001:db8::"+string(rune('1'+i%9)), "x")
	}
	if code := from("2001:db8::ffff", "x"); code != farm.CodeTooManyTries {
		t.Errorf("one party's other IPv6 address: %q", code)
	}
}

// TestNamesOfTheSocket: whom only a directory service knows is known by the name there, and nobody is when it does not
// answer.
func TestNamesOfTheSocket(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		err  error
		want string
		code farm.Code
	}{
		"a user of LDAP": {out: "ann:*:70001:7000::/nfs/ann:/bin/sh\n", want: "ann"},
		"nobody's":       {err: &program.Failed{Status: 2}, code: farm.CodeNotKnown},
		"no answer":      {err: errors.New("no answer"), code: farm.CodeNoNames},
	} {
		service := names.New(func(context.Context, program.Call) ([]byte, error) { return []byte(c.out), c.err })
		a := New(Options{Directory: people{"ann": "ann"}, Names: service})
		who, err := a.Identify(t.Context(), Shown{Socket: true, UID: 70001})
		if who.User != c.want || c.code == "" && err != nil || c.code != "" && !farm.IsCode(err, c.code) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}
