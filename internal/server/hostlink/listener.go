package hostlink

import (
	"context"
	"crypto/tls"
	"sync"
	"time"
	"unique"

	"github.com/grange-project/grange/internal/pki"
)

const (
	// shownFor is after how long a listener's certificates are made anew: they must never end.
	shownFor = time.Hour
	// shakeWait is how long a TLS handshake waits for the database, when the authorities changed.
	shakeWait = 5 * time.Second
)

// ListenerCertificates are what a listener shows: of each authority one.
type ListenerCertificates struct {
	links *Links
	names []string

	mu    sync.Mutex
	certs []tls.Certificate
	of    unique.Handle[string] // the authorities
	until time.Time
}

// ListenerCertificates are those of a listener that is reached by some names.
func (s *Links) ListenerCertificates(names []string) *ListenerCertificates {
	return &ListenerCertificates{links: s, names: names}
}

// Get is for tls.Config.GetCertificate: a certificate of the newest authority that the client says it believes.
func (l *ListenerCertificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	certs, err := l.present(hello.Context())
	if err != nil {
		return nil, err
	}
	return pki.Choose(certs, hello.SupportedProtos), nil
}

// Again has the next connection have fresh ones.
func (l *ListenerCertificates) Again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Time{}
}

func (l *ListenerCertificates) present(ctx context.Context) ([]tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, shakeWait)
	defer cancel()
	a, err := l.links.authorities(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.links.Now()
	switch {
	case err != nil && len(l.certs) > 0: // the database does not answer: as before
		return l.certs, nil
	case err != nil:
		return nil, err
	case a.trusted == l.of && now.Before(l.until):
		return l.certs, nil
	}
	var certs []tls.Certificate
	for _, ca := range a.All() {
		c, err := ca.IssueServer(l.names, now)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	l.certs, l.of, l.until = certs, a.trusted, now.Add(shownFor)
	return certs, nil
}
