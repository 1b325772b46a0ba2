package hostlink

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// maxClock is how far a host's clock may be from ours when it joins: certificates are backdated by an hour.
const maxClock = 10 * time.Minute

var hostPattern = lazyregexp.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func validHost(name string) bool { return len(name) <= 253 && hostPattern.MatchString(name) }

// enrolment is one host that joins, in its transaction.
type enrolment struct {
	*store.Tx
	links *Links
	cas   authorities
	now   time.Time
	r     fleet.EnrolRequest
	token pki.JoinToken
	shown []*x509.Certificate
	peer  pki.Peer // of a host that joins by a certificate of the site's; the zero value otherwise

	real   bool // there is such a token
	proven bool // the host that is replaced joins itself: it has the key of its present certificate
	host   farm.Host
	issued pki.Issued
}

// Enrol trades a join token for a host's identity. shown are the certificates of the connection: of hosts that have one
// of the site's, and of those that replace their own identity. What is refused leaves an entry in the audit log when
// its token was a real one.
func (s *Links) Enrol(ctx context.Context, shown []*x509.Certificate, r fleet.EnrolRequest) (fleet.EnrolAnswer,
	error) {
	token, err := pki.ParseJoinToken(r.Token)
	if err != nil {
		return fleet.EnrolAnswer{}, err
	}
	cas, err := s.authorities(ctx)
	if err != nil {
		return fleet.EnrolAnswer{}, err
	}
	e := &enrolment{links: s, cas: cas, now: s.Now().UTC(), r: r, token: token, shown: shown}
	// Requests without a valid token are refused here, before anything waits or is written. The transaction checks
	// again, because the token may be used up by then.
	err = s.Store.View(ctx, func(t *store.Tx) error {
		e.Tx = t
		_, err := e.useToken()
		return err
	})
	if err != nil {
		e.refused(ctx, err)
		return fleet.EnrolAnswer{}, err
	}
	if len(r.CSR) == 0 {
		if e.peer, err = cas.peers.Peer(shown, e.now); err != nil {
			return fleet.EnrolAnswer{}, err
		}
	}
	_, err = s.Store.Update(ctx, func(t *store.Tx) error {
		e.Tx = t
		return e.run()
	})
	if err != nil {
		e.refused(ctx, err)
		return fleet.EnrolAnswer{}, err
	}
	s.forgetLink(e.host.ID)
	s.Log.Info("host enrolled", "host", e.host.Name, "id", e.host.ID, "cell", e.host.Cell, "replaced", r.Replace,
		"proven", e.proven)
	return s.identity(ctx, e.host, e.issued)
}

func (e *enrolment) run() error {
	k, err := e.useToken()
	if err != nil {
		return err
	}
	if err := e.check(k); err != nil {
		return err
	}
	old, err := e.HostNamed(e.r.Name)
	switch {
	case action.Missing(err):
		old = farm.Host{}
	case err != nil:
		return err
	}
	if err := e.mayJoin(k, old); err != nil {
		return err
	}
	if err := e.identify(k, old); err != nil {
		return err
	}
	if old.ID != "" && !e.proven {
		if err := e.disown(old); err != nil {
			return err
		}
	}
	e.host = e.made(k, old)
	if len(e.r.CSR) > 0 {
		ca := e.cas.Newest()
		if e.issued, err = ca.IssueHost(e.host.ID, e.r.CSR, e.now); err != nil {
			return err
		}
		e.host.Serial, e.host.Expires, e.host.Issuer = e.issued.Serial, e.issued.Expires, ca.Fingerprint()
	}
	if old.ID == "" {
		err = e.InsertHost(e.host)
	} else {
		err = e.SetHost(e.host)
	}
	if err != nil {
		return err
	}
	k.Uses, k.Used, k.Host = k.Uses+1, e.now, e.host.ID
	if err := e.PutJoinToken(k); err != nil {
		return err
	}
	who := farm.Identity{Host: e.host.Name, Means: "join token", Source: k.ID}
	return e.Audit(action.Entry(who, e.now, action.EnrolHost, action.HostTarget(e.host), action.Done, ""))
}

// refused records why a host that had a token was not let in, a few times for each token. Of others nothing is
// recorded: anybody can ask.
func (e *enrolment) refused(ctx context.Context, err error) {
	own, ok := errors.AsType[*farm.Error](err)
	if !ok || !e.real {
		return
	}
	room, more := e.links.refusals.Add(e.token.ID)
	if !room {
		return
	}
	who := farm.Identity{Host: farm.Printable(e.r.Name), Means: "join token", Source: e.token.ID}
	line := action.Entry(who, e.now, action.EnrolHost, policy.Target{Name: who.Host}, action.Denied,
		string(own.Code)+": "+own.Message)
	if more > 0 {
		line.Reason += fmt.Sprintf("; and %d refusals before, which are not recorded", more)
	}
	if _, err := e.links.Store.Update(ctx, func(t *store.Tx) error { return t.Audit(line) }); err != nil {
		e.links.Log.Error("a refusal could not be recorded", "action", action.EnrolHost, "target", who.Host, "error",
			err)
	}
}

// useToken finds the token and refuses one that is over. Whoever guesses learns nothing: an unknown token and a wrong
// secret are one answer.
func (e *enrolment) useToken() (farm.JoinToken, error) {
	k, err := e.JoinToken(e.token.ID)
	if err != nil && !action.Missing(err) {
		return k, err
	}
	e.real = err == nil && e.token.Is(k.Hash)
	again := "have a new one made: `grange host token create`"
	switch {
	case !e.real:
		return k, refuseJoin("this server made no such join token", "see that it is the right server; "+again)
	case !e.now.Before(k.Expires):
		return k, refuseJoin("the join token ended at "+k.Expires.UTC().Format(time.RFC3339), again)
	case k.Uses >= max(k.Count, 1):
		return k, refuseJoin("the join token is used up",
			"if it was not this host that used it, look who joined (`grange host list`); "+again)
	case k.Name != "" && k.Name != e.r.Name:
		return k, refuseJoin(fmt.Sprintf("the join token is for host %s, not for %.80q", k.Name, e.r.Name),
			"give `--name "+k.Name+"`, or "+again)
	}
	return k, nil
}

func refuseJoin(message, hint string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeJoinRefused, Message: message, Hint: hint}
}

// check refuses what makes no sense whoever else is enrolled.
func (e *enrolment) check(k farm.JoinToken) error {
	if _, err := e.Cell(k.Cell); err != nil {
		return err
	}
	if e.peer.ID != "" || e.peer.Name != "" && e.peer.Name != e.r.Name {
		return refuseJoin(fmt.Sprintf("the certificate is of host %s, not of %.80q", e.peer.Name, e.r.Name),
			"give `--name "+e.peer.Name+"`")
	}
	if !validHost(e.r.Name) {
		return badJoin("%.80q cannot be a host's name", e.r.Name)
	}
	off := e.r.Now.Sub(e.now)
	if off.Abs() > maxClock {
		return clockOff(off)
	}
	return nil
}

func clockOff(off time.Duration) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeClockOff,
		Message: "this host's clock is " + Ahead(off) + " the server's",
		Hint:    "set both right, best by NTP or chrony, and try again"}
}

// Ahead returns how far one clock is from another: "23h59m12s behind".
func Ahead(off time.Duration) string {
	if off < 0 {
		return off.Abs().Round(time.Second).String() + " behind"
	}
	return off.Round(time.Second).String() + " ahead of"
}

// identify refuses a host that takes the name of another one, unless it may replace that, and a clone of another.
func (e *enrolment) identify(k farm.JoinToken, old farm.Host) error {
	if old.ID != "" {
		if err := e.replaces(k, old); err != nil {
			return err
		}
	}
	if e.r.MachineID == "" || e.r.MachineID == old.MachineID {
		return nil
	}
	twin, err := e.HostOfMachine(e.r.MachineID)
	if action.Missing(err) || err == nil && twin.ID == old.ID {
		return nil
	}
	if err != nil {
		return err
	}
	return &farm.Error{Kind: farm.Conflict, Code: CodeClonedHost,
		Message: "host " + twin.Name + " has the same /etc/machine-id as this one",
		Hint: "if this one is a clone: `rm /etc/machine-id && systemd-machine-id-setup`; if it was renamed: `grange " +
			"host forget " + twin.Name + "` first"}
}

// made is the host's row. A host that takes its own place again keeps its ID, what people said of it, and no more.
func (e *enrolment) made(k farm.JoinToken, old farm.Host) farm.Host {
	h := old
	if h.ID == "" {
		h.ID, h.Name = api.NewID(), e.r.Name
	}
	if h.Known = old.Known; h.Known.IsZero() {
		h.Known = old.Enrolled
	}
	if h.Threads = (farm.Threads{}); h.Known.IsZero() {
		h.Known = e.now
	}
	h.Cell, h.MachineID, h.Enrolled, h.Before, h.Fenced = k.Cell, e.r.MachineID, e.now, "", time.Time{}
	h.Serial, h.Expires, h.Issuer = pki.SiteSerial, e.peer.Expires, ""
	if k.Labels != nil {
		h.Labels = k.Labels
	}
	return h
}

// identity is what a host is told of itself.
func (s *Links) identity(ctx context.Context, h farm.Host, issued pki.Issued) (fleet.EnrolAnswer, error) {
	trust, err := s.trust(ctx)
	if err != nil {
		return fleet.EnrolAnswer{}, err
	}
	servers := s.Servers
	if len(servers) == 0 && s.URL != "" {
		servers = []string{s.URL}
	}
	return fleet.EnrolAnswer{Host: h.ID, Name: h.Name, Certificate: issued.PEM, CA: pki.CertificatesPEM(trust),
		Servers: servers}, nil
}

// Renew issues the next certificate of a host. The one that it shows stays good until the next one was seen: the answer
// may get lost.
func (s *Links) Renew(ctx context.Context, who farm.Identity, r fleet.RenewRequest) (fleet.EnrolAnswer, error) {
	cas, err := s.Authorities(ctx)
	if err != nil {
		return fleet.EnrolAnswer{}, err
	}
	ca := cas.Newest()
	if who.Source == pki.SiteSerial {
		return fleet.EnrolAnswer{}, refuseJoin("this host's certificate is of the site's authority, which renews it",
			"put the new one where the old one was")
	}
	var h farm.Host
	var issued pki.Issued
	_, err = s.Store.Update(ctx, func(t *store.Tx) error {
		if h, err = t.Host(who.Host); err != nil {
			return err
		}
		if who.Source != h.Serial && who.Source != h.Before {
			return revoked(h.Name)
		}
		if issued, err = ca.IssueHost(h.ID, r.CSR, s.Now()); err != nil {
			return err
		}
		h.Serial, h.Before, h.Expires, h.Issuer = issued.Serial, who.Source, issued.Expires, ca.Fingerprint()
		if err := t.SetHost(h); err != nil {
			return err
		}
		me := farm.Identity{Host: h.Name, Means: who.Means, Source: who.Source}
		return t.Audit(action.Entry(me, s.Now().UTC(), action.RenewHost, action.HostTarget(h), action.Done, ""))
	})
	if err != nil {
		return fleet.EnrolAnswer{}, err
	}
	s.forgetLink(h.ID)
	return s.identity(ctx, h, issued)
}
