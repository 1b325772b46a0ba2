package uplink

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/pki"
)

// renew asks for the next certificate when it is time, and returns errRenewed when there is one: with a key of its own,
// so that a key that got out does not count for ever. That the server refuses is an error only when the present
// certificate has run out, which the server says.
func (s *session) renew(ctx context.Context) error {
	id, _ := s.present()
	if at := id.renewAt(); at.IsZero() || time.Now().Before(at) {
		return nil
	}
	return s.renewNow(ctx)
}

// renewNow is renew when it is time, and when the server says so. After a refusal it waits.
func (s *session) renewNow(ctx context.Context) error {
	id, _ := s.present()
	if id.CertificateFile != "" || time.Now().Before(s.retry()) {
		return nil
	}
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		return err
	}
	var a fleet.EnrolAnswer
	if _, err := s.ask(ctx, answerTime, http.MethodPost, fleet.RouteRenew, fleet.RenewRequest{CSR: csr},
		&a); err != nil {
		s.log.Warn("certificate not renewed", "reason", err)
		s.tryAgain(time.Now().Add(renewAgain))
		return nil
	}
	next := id
	next.Key, next.Certificate = string(key), string(a.Certificate)
	next.CA = s.believed(a.CA, id)
	if len(a.Servers) > 0 {
		next.Servers = a.Servers
	}
	if _, err := next.pair(); err != nil {
		return garbled(s.caller.server(), err)
	}
	if err := s.keep.write(next); err != nil {
		return err
	}
	if err := s.use(next); err != nil {
		return err
	}
	s.log.Info("certificate renewed", "host", next.Name)
	return errRenewed
}

// believed returns whom to believe about servers after an answer that names authorities. A set that does not vouch for
// the server that sent it would be the last thing that this host is sent: it is not taken.
func (s *session) believed(ca []byte, id Identity) string {
	next := Identity{CA: string(ca)}
	if len(ca) == 0 || slices.Equal(next.trusts(), id.trusts()) {
		return id.CA
	}
	if err := s.caller.vouched(next.authorities()); err != nil {
		s.log.Warn("authorities of the server's not taken over", "reason", err)
		return id.CA
	}
	return next.CA
}

// trust takes over whom to believe about servers, and returns errRenewed when that is news.
func (s *session) trust(ca []byte) error {
	id, _ := s.present()
	next := id
	if next.CA = s.believed(ca, id); next.CA == id.CA {
		return nil
	}
	if err := s.keep.write(next); err != nil {
		return err
	}
	if err := s.use(next); err != nil {
		return err
	}
	s.log.Info("authorities taken over", "host", next.Name, "authorities", len(next.trusts()))
	return errRenewed
}

// renewAgain is when to ask once more after the server did not renew: there are days left.
const renewAgain = time.Hour

func (l *Link) retry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewNot
}

func (l *Link) tryAgain(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewNot = at
}
