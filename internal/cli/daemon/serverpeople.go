package daemon

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// newPeople reads who vouches for people.
func newPeople(c config.Server, log *slog.Logger) (*authn.People, error) {
	var all []authn.Authority
	for _, name := range slices.Sorted(maps.Keys(c.People)) {
		a, err := readAuthority(name, c.People[name], log)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return authn.NewPeople(all...), nil
}

func readAuthority(name string, c config.Authority, log *slog.Logger) (a authn.Authority, err error) {
	a.Name = name
	if a.Roots, err = pki.ReadCertificates(c.CA); err != nil {
		return a, err
	}
	if other := another(a.Roots); other != nil {
		return a, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: fmt.Sprintf("%s has certificates of several authorities, as %q and %q", c.CA, a.Roots[0].Subject,
				other.Subject), Hint: "give each a [people.NAME] of its own in server.toml, and users' subjects that " +
				"name: any authority could sign any subject"}
	}
	for _, text := range c.Subjects {
		s, err := farm.ParseSubject(text)
		if err != nil {
			return a, err
		}
		a.Subjects = append(a.Subjects, s)
	}
	if len(c.CRL) > 0 {
		a.Revoked, err = pki.ReadRevocations(log, c.CRL...)
	}
	return a, err
}

// another is one of some certificates that is of another authority than the first; nil: there is none. Below an
// authority are others, and it may have an older and a newer key.
func another(certs []*x509.Certificate) *x509.Certificate {
	top := func(c *x509.Certificate) []byte {
		for range certs {
			above := slices.IndexFunc(certs,
				func(o *x509.Certificate) bool { return bytes.Equal(o.RawSubject, c.RawIssuer) })
			if above < 0 {
				break
			}
			c = certs[above]
		}
		return c.RawSubject
	}
	for _, c := range certs {
		if !bytes.Equal(top(c), top(certs[0])) {
			return c
		}
	}
	return nil
}
