package authn

import (
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// Authority vouches for certificates of people.
type Authority struct {
	Name     string // as users' subjects have it
	Roots    []*x509.Certificate
	Subjects []farm.Subject   // namespaces of subjects that it may sign; none: all
	Revoked  *pki.Revocations // nil: nobody looks
}

// People are all authorities that vouch for people.
type People struct {
	authorities []Authority
	roots       []*x509.CertPool // of each
}

// NewPeople trusts some authorities; nil: there are none.
func NewPeople(authorities ...Authority) *People {
	if len(authorities) == 0 {
		return nil
	}
	p := &People{authorities: authorities}
	for _, a := range authorities {
		pool := x509.NewCertPool()
		for _, c := range a.Roots {
			pool.AddCert(c)
		}
		p.roots = append(p.roots, pool)
	}
	return p
}

// Reread has files of revocation lists read again.
func (p *People) Reread() {
	if p == nil {
		return
	}
	for _, a := range p.authorities {
		if a.Revoked != nil {
			a.Revoked.Reread()
		}
	}
}

// verify is the name of the authority that vouches for a certificate with a subject. The error is a *farm.Error.
func (p *People) verify(shown []*x509.Certificate, subject farm.Subject, now time.Time) (authority string, err error) {
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	for i, a := range p.authorities {
		chains, failed := shown[0].Verify(x509.VerifyOptions{Roots: p.roots[i], Intermediates: between,
			CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if failed == nil {
			failed = a.takes(chains, subject, now)
		} else {
			failed = doesNotHold(failed)
		}
		if failed == nil {
			return a.Name, nil
		}
		if err == nil || pki.IsRevocation(failed) { // it says most
			err = failed
		}
	}
	return "", err
}

// takes refuses what an authority has signed and may not sign, or has taken back.
func (a Authority) takes(chains [][]*x509.Certificate, subject farm.Subject, now time.Time) error {
	if len(a.Subjects) > 0 && !slices.ContainsFunc(a.Subjects, subject.Below) {
		return doesNotHold(errors.New("authority " + a.Name + " may not sign this subject"))
	}
	if a.Revoked == nil {
		return nil
	}
	var err error
	for _, chain := range chains {
		if err = a.Revoked.Check(chain, now); err == nil {
			return nil
		}
	}
	return err
}

func doesNotHold(err error) error {
	refusal := notKnown("the client certificate does not hold",
		"see its dates and its authority: `openssl x509 -noout -subject -issuer -dates`")
	refusal.Err = err
	return refusal
}
