package hostlink

import (
	"context"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
)

// theCA is what the authorities are called as a target.
var theCA = policy.Target{Name: "the fleet's CA"}

// Authority is one of the fleet's authorities, as people see it.
type Authority struct {
	*pki.CA
	Next     bool // it is to replace the other one
	Hosts    int  // whose certificates it issued
	Trusting int  // hosts that report that they believe it about servers
}

// CAView is how the fleet's authorities are.
type CAView struct {
	Authorities []Authority // the newest first
	Site        bool        // the site vouches for the listener: hosts believe that, and not these
	Waited      []Waited    // who still needs the present one, while it is replaced
	// of a rotation, if nobody who is not away needs the present one then; zero: none is under way
	Ends time.Time
}

// CA returns how the fleet's authorities are.
func (s *fleetCA) CA(ctx context.Context, who farm.Identity) (v CAView, err error) {
	err = s.actions.Look(ctx, who, policy.ReadCA, func(c *action.Call) error {
		if err := c.May(theCA); err != nil {
			return err
		}
		cas, err := s.keptCAs(c)
		if err == nil {
			v, err = s.caView(c, cas)
		}
		return err
	})
	return v, err
}

// keptCAs are the authorities as the transaction sees them.
func (s *fleetCA) keptCAs(c *action.Call) (pki.CAs, error) {
	text, err := c.Setting(AuthoritySetting)
	if err != nil {
		return pki.CAs{}, err
	}
	seal, err := pki.ReadSeal(s.CAKeyFile)
	if err != nil {
		return pki.CAs{}, err
	}
	return pki.ParseCAs(text, seal)
}

func (s *fleetCA) caView(c *action.Call, cas pki.CAs) (CAView, error) {
	v := CAView{Site: len(s.ListenerCAs) > 0}
	present := cas.Present.Fingerprint()
	r := rotation{next: cas.Newest().Fingerprint(), made: cas.Newest().Made(), site: v.Site, now: c.Now}
	issued, trusting := map[string]int{}, map[string]int{}
	err := c.EachHost("", func(h farm.Host) {
		if h.Serial != pki.SiteSerial && c.Now.Before(h.Expires) {
			issued[issuerOf(h, present)]++
		}
		for _, f := range h.Facts.Trusts {
			trusting[f]++
		}
		if w, needs := r.host(h, s.hosts.Seen(h)); needs && cas.Next != nil {
			v.Waited = append(v.Waited, w)
		}
	})
	if err != nil {
		return v, err
	}
	for _, ca := range cas.All() {
		f := ca.Fingerprint()
		one := Authority{CA: ca, Next: ca == cas.Next, Hosts: issued[f], Trusting: trusting[f]}
		v.Authorities = append(v.Authorities, one)
	}
	if cas.Next == nil {
		return v, nil
	}
	v.Ends = r.made.Add(retireAfter)
	tokens, err := c.JoinTokens()
	for _, k := range tokens {
		if w, needs := r.token(k); needs {
			v.Waited = append(v.Waited, w)
		}
	}
	return v, err
}

// issuerOf is the authority that issued a host's certificate. Releases before did not keep that: they had one, which
// was there before any other.
func issuerOf(h farm.Host, present string) string {
	if h.Issuer == "" {
		return present
	}
	return h.Issuer
}

// RotateCA makes the authority that is to replace the present one.
func (s *fleetCA) RotateCA(ctx context.Context, who farm.Identity) (v CAView, err error) {
	_, err = s.actions.Change(ctx, who, policy.RotateCA, func(c *action.Call) error {
		if err := c.May(theCA); err != nil {
			return err
		}
		cas, err := s.keptCAs(c)
		if err != nil {
			return err
		}
		if cas.Next != nil {
			return &farm.Error{Kind: farm.Conflict, Code: CodeCARotates,
				Message: "the fleet's CA is being replaced since " + action.When(cas.Next.Made()),
				Hint:    "`grange server ca` says what that waits for; `grange server ca retire` ends it"}
		}
		if cas.Next, err = pki.NewCA(c.Now); err != nil {
			return err
		}
		if err := s.putCAs(c, cas); err != nil {
			return err
		}
		if v, err = s.caView(c, cas); err != nil {
			return err
		}
		return c.Did("next authority " + cas.Next.Fingerprint())
	})
	s.rereadAuthorities()
	return v, err
}

func (s *fleetCA) putCAs(c *action.Call, cas pki.CAs) error {
	seal, err := pki.ReadSeal(s.CAKeyFile)
	if err != nil {
		return err
	}
	return putAuthorities(c.Tx, cas, seal)
}

// RetireCA ends a rotation: the present authority goes, with its key. Those who still need it must be named, hosts by
// name and join tokens by ID: they are cut off.
func (s *fleetCA) RetireCA(ctx context.Context, who farm.Identity, without []string) (v CAView, err error) {
	_, err = s.actions.Change(ctx, who, policy.RetireCA, func(c *action.Call) error {
		if err := c.May(theCA); err != nil {
			return err
		}
		cas, err := s.keptCAs(c)
		if err != nil {
			return err
		}
		if cas.Next == nil {
			return &farm.Error{Kind: farm.Conflict, Code: CodeNoRotation,
				Message: "the fleet has one authority, which nothing replaces",
				Hint:    "`grange server ca rotate` makes the next one"}
		}
		before, err := s.caView(c, cas)
		if err != nil {
			return err
		}
		if err := mayRetire(before.Waited, without); err != nil {
			return err
		}
		if cas, err = s.retire(c, cas, before.Waited); err == nil {
			v, err = s.caView(c, cas)
		}
		return err
	})
	s.rereadAuthorities()
	return v, err
}

// retire leaves the next authority alone.
func (s *fleetCA) retire(c *action.Call, cas pki.CAs, cut []Waited) (pki.CAs, error) {
	old := cas.Present.Fingerprint()
	cas = pki.CAs{Present: cas.Next}
	var names []string
	for _, w := range cut {
		names = append(names, w.Name())
		if w.Host == "" {
			continue
		}
		h, err := c.HostNamed(w.Host)
		if err == nil && h.Issuer == "" && h.Serial != pki.SiteSerial { // it is not of the authority that is left
			h.Issuer = old
			err = c.SetHost(h)
		}
		if err != nil {
			return cas, err
		}
	}
	reason := "retired authority " + old
	if len(names) > 0 {
		reason += ", without " + strings.Join(names, ", ")
	}
	if err := s.putCAs(c, cas); err != nil {
		return cas, err
	}
	s.Log.Info("authority of the fleet retired", "retired", old, "present", cas.Present.Fingerprint(),
		"without", names)
	return cas, c.Did(reason)
}

// RetireDue ends a rotation by itself when it is time and nobody needs the present authority, twice in a row: where
// this server's clock has jumped ahead, hosts that live look away until they have reported again.
func (s *fleetCA) RetireDue(ctx context.Context, epoch int64) error {
	cas, err := s.Authorities(ctx)
	if err != nil || cas.Next == nil || s.Now().Before(cas.Next.Made().Add(retireAfter)) {
		return err
	}
	due := ""
	err = s.actions.ByItself(ctx, epoch, policy.RetireCA, func(c *action.Call) error {
		c.Target, due = theCA, ""
		cas, err := s.keptCAs(c)
		if err != nil || cas.Next == nil {
			return err
		}
		v, err := s.caView(c, cas)
		if err != nil || !(rotation{made: cas.Next.Made(), now: c.Now}).due(v.Waited) {
			return err
		}
		if due = cas.Next.Fingerprint(); due != s.due {
			return nil
		}
		_, err = s.retire(c, cas, v.Waited)
		return err
	})
	s.due = due
	s.rereadAuthorities()
	return err
}

// CAWarnings are what people should know of the fleet's authorities.
func (s *fleetCA) CAWarnings(ctx context.Context) ([]string, error) {
	cas, err := s.Authorities(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	if w := pki.EndsSoon(cas.Newest().Certificate, s.Now()); w != "" {
		all = append(all, w)
	}
	if cas.Next != nil {
		all = append(all, "the fleet's CA is being replaced since "+action.When(cas.Next.Made())+
			": `grange server ca` says what that waits for")
	}
	return all, nil
}

// renewEach is how often a server asks one of its hosts to renew its certificate in a rotation: a signature, a commit
// and a new TLS connection.
const renewEach = 50 * time.Millisecond

// AskRenewal is after how long a host that has not renewed is asked again: one that does not, and reports all the time,
// takes no other's turn.
const AskRenewal = time.Minute

// trusted is a set of authorities, in a form that is small for thousands of hosts.
func trusted(fingerprints []string) unique.Handle[string] {
	return unique.Make(strings.Join(slices.Sorted(slices.Values(fingerprints)), " "))
}

// trustedBy is trusted of what a host says that it trusts; an agent that knows nothing of rotation says nothing.
func trustedBy(fingerprints []string) (none unique.Handle[string]) {
	if len(fingerprints) == 0 {
		return none
	}
	return trusted(fingerprints)
}

// rotates puts into the answer to a report what the host is to do about the fleet's authorities. The link is locked.
func (s *fleetCA) rotates(ctx context.Context, l *link, serial string, answer *fleet.ReportAnswer) error {
	a, err := s.authorities(ctx)
	if err != nil {
		return err
	}
	if len(s.ListenerCAs) == 0 && l.trusts != (unique.Handle[string]{}) && l.trusts != a.trusted {
		s.doubtAuthorities() // the host may have it from a server that knows more
		if a, err = s.authorities(ctx); err != nil {
			return err
		}
		if l.trusts != a.trusted {
			answer.CA = pki.CertificatesPEM(a.Certificates())
		}
	}
	renewed := serial == pki.SiteSerial || serial == l.serial && l.issuer == a.issuer
	if a.Next == nil || renewed || s.Now().Sub(l.asked) < AskRenewal {
		return nil
	}
	if answer.Renew, _ = s.renewals.Add(""); answer.Renew {
		l.asked = s.Now()
	}
	return nil
}
