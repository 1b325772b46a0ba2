package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Site is an authority of the site's own whose certificates hosts may have instead of ours.
type Site struct {
	Roots *x509.CertPool
	Field Field
}

// Field is where a site's certificates name the host.
type Field string

// The fields.
const (
	FieldDNS Field = "dns" // the first DNS name
	FieldCN  Field = "cn"  // the common name of the subject
)

// SiteSerial stands for the serials of all certificates of the site's CA, which renews them as it likes.
const SiteSerial = "site"

// Peer is a host as its certificate says.
type Peer struct {
	ID      string // of a certificate of ours; "" of the site's
	Name    string // of a certificate of the site's; "" of ours
	Serial  string // or SiteSerial
	Expires time.Time
}

// Authorities are who vouches for hosts.
type Authorities struct {
	own  *x509.CertPool
	site *Site
}

// NewAuthorities trusts the fleet's own authorities and, unless nil, the site's.
func NewAuthorities(own []*x509.Certificate, site *Site) *Authorities {
	a := &Authorities{own: x509.NewCertPool(), site: site}
	for _, c := range own {
		a.own.AddCert(c)
	}
	return a
}

// Peer reads the certificates that a connection showed, the host's first. Errors are farm.Error: Denied, with a code
// for each reason. It does not say whether the certificate was revoked.
func (a *Authorities) Peer(shown []*x509.Certificate, now time.Time) (Peer, error) {
	if len(shown) == 0 {
		return Peer{}, denied(CodeNoHostCert, "only hosts may ask this, by their certificate",
			"join first: `grange host join`", nil)
	}
	leaf := shown[0]
	ours := true
	err := verify(shown, a.own, now)
	if err != nil && !outOfTime(err) && a.site != nil {
		ours = false
		err = verify(shown, a.site.Roots, now)
	}
	switch {
	case outOfTime(err):
		return Peer{}, certTime(leaf, now, err)
	case err != nil:
		return Peer{}, unknown(leaf)
	case ours:
		return own(leaf)
	}
	return a.site.peer(leaf)
}

// peer reads a certificate of the site's.
func (s *Site) peer(leaf *x509.Certificate) (Peer, error) {
	p := Peer{Name: leaf.Subject.CommonName, Serial: SiteSerial, Expires: leaf.NotAfter}
	if s.Field == FieldDNS {
		p.Name = ""
		if len(leaf.DNSNames) > 0 {
			p.Name = leaf.DNSNames[0]
		}
	}
	if p.Name == "" {
		return Peer{}, denied(CodeUnknownCert, fmt.Sprintf("the site's certificate %q names no host in its field %q",
			leaf.Subject, s.Field), "see what the server's configuration says of hosts' certificates", nil)
	}
	return p, nil
}

// own reads a certificate that our own authority signed. It signs for servers too: those have no such name.
func own(leaf *x509.Certificate) (Peer, error) {
	for _, u := range leaf.URIs {
		if id, ok := strings.CutPrefix(u.String(), hostURI); ok {
			return Peer{ID: id, Serial: Serial(leaf), Expires: leaf.NotAfter}, nil
		}
	}
	return Peer{}, unknown(leaf)
}

func verify(shown []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

func outOfTime(err error) bool {
	invalid := x509.CertificateInvalidError{}
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

func certTime(leaf *x509.Certificate, now time.Time, err error) error {
	if now.Before(leaf.NotBefore) {
		return denied(CodeCertTime, fmt.Sprintf(
			"the host's certificate is valid from %s on; the server's clock says %s", stamp(leaf.NotBefore),
			stamp(now)), "set the clocks of both right", err)
	}
	return denied(CodeCertTime, fmt.Sprintf("the host's certificate was valid until %s; the server's clock says %s",
		stamp(leaf.NotAfter), stamp(now)),
		"if that is true, the host was away for too long: join anew with `grange host join --replace`; otherwise set "+
			"the server's clock right", err)
}

func unknown(leaf *x509.Certificate) error {
	return denied(CodeUnknownCert, fmt.Sprintf("the certificate of %q is of no authority that this server knows",
		leaf.Subject), "join this server's fleet: `grange host join --replace`", nil)
}

func denied(code farm.Code, message, hint string, err error) error {
	return &farm.Error{Kind: farm.Denied, Code: code, Message: message, Hint: hint, Err: err}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
