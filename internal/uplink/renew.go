package uplink

import (
	"context"
	"net/http"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/pki"
)

// renew asks for the next certificate when it is time, and returns errRenewed when there is one: with a key of its own, so that a key that got
// out does not count for ever. That the server refuses is an error only when the present certificate has run out, which the server says.
func (s *session) renew(ctx context.Context) error {
	id, _ := s.present()
	if at := id.renewAt(); at.IsZero() || time.Now().Before(at) || time.Now().Before(s.retry()) {
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
	if _, err := s.ask(ctx, answerTime, http.MethodPost, fleet.RouteRenew, fleet.RenewRequest{CSR: csr}, &a); err != nil {
		s.log.Warn("certificate not renewed", "reason", err)
		s.tryAgain(time.Now().Add(renewAgain))
		return nil
	}
	next := id
	next.Key, next.Certificate = string(key), string(a.Certificate)
	if len(a.CA) > 0 {
		next.CA = string(a.CA)
	}
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
