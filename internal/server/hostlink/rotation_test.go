package hostlink

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// Whom a rotation waits for.
func TestRotationWaits(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	both := []string{"next", "old"}
	ready := farm.Host{Name: "wn-1", Serial: "1", Issuer: "next", Expires: now.Add(time.Hour),
		Facts: farm.Facts{Trusts: both}}
	with := func(change func(*farm.Host)) farm.Host {
		h := ready
		change(&h)
		return h
	}
	for name, c := range map[string]struct {
		host farm.Host
		site bool
		why  string // part of; "": it is not waited for
	}{
		"ready": {host: ready},
		"an agent of before": {host: with(func(h *farm.Host) { h.Facts.Trusts = nil }),
			why: "update grange there"},
		"does not know the next": {host: with(func(h *farm.Host) { h.Facts.Trusts = []string{"old"} }),
			why: "does not trust"},
		"knows the next alone": {host: with(func(h *farm.Host) { h.Facts.Trusts = []string{"next"} })},
		"has the old one's certificate": {host: with(func(h *farm.Host) { h.Issuer = "old" }),
			why: "of the present authority"},
		"whose issuer nobody wrote": {host: with(func(h *farm.Host) { h.Issuer = "" }),
			why: "of the present authority"},
		"did not use the next one's": {host: with(func(h *farm.Host) { h.Before = "0" }),
			why: "has not used"},
		"has to join anew anyway": {host: with(func(h *farm.Host) {
			h.Issuer, h.Facts.Trusts,
				h.Expires = "old", nil, now
		})},
		"the site's, and trusts": {host: with(func(h *farm.Host) {
			h.Serial, h.Issuer,
				h.Expires = pki.SiteSerial, "", time.Time{}
		})},
		"the site's, and does not": {host: with(func(h *farm.Host) {
			h.Serial,
				h.Facts.Trusts = pki.SiteSerial, []string{"old"}
		}), why: "does not trust"},
		"the site's, below a site's listener": {host: with(func(h *farm.Host) {
			h.Serial,
				h.Facts.Trusts = pki.SiteSerial, nil
		}), site: true},
		"below a site's listener": {host: with(func(h *farm.Host) { h.Facts.Trusts = nil }), site: true},
		"below a site's listener, the old one": {host: with(func(h *farm.Host) { h.Issuer = "old" }), site: true,
			why: "of the present authority"},
	} {
		w, needs := rotation{next: "next", site: c.site, now: now}.host(c.host, now)
		if needs != (c.why != "") || !strings.Contains(w.Why, c.why) {
			t.Errorf("%s: %v %q", name, needs, w.Why)
		}
	}
	for name, c := range map[string]struct {
		token farm.JoinToken
		site  bool
		needs bool
	}{
		"of the old one":      {token: farm.JoinToken{CA: "old", Expires: now.Add(time.Minute)}, needs: true},
		"of a release before": {token: farm.JoinToken{Expires: now.Add(time.Minute)}, needs: true},
		"of the next":         {token: farm.JoinToken{CA: "next", Expires: now.Add(time.Minute)}},
		"that ended":          {token: farm.JoinToken{CA: "old", Expires: now}},
		"that is used up":     {token: farm.JoinToken{CA: "old", Expires: now.Add(time.Minute), Count: 2, Uses: 2}},
		"that is half used": {token: farm.JoinToken{CA: "old", Expires: now.Add(time.Minute), Count: 2, Uses: 1},
			needs: true},
		"below the site's list": {token: farm.JoinToken{CA: "site", Expires: now.Add(time.Minute)}, site: true},
	} {
		if _, needs := (rotation{next: "next", site: c.site, now: now}).token(c.token); needs != c.needs {
			t.Errorf("a token %s: %v", name, needs)
		}
	}
}

// When a rotation ends by itself, and when people may end it.
func TestRotationEnds(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	away, here, token := Waited{Host: "away", Away: true}, Waited{Host: "here"}, Waited{Token: "k1"}
	for name, c := range map[string]struct {
		since   time.Duration
		waited  []Waited
		without []string
		due     bool
		code    farm.Code
	}{
		"at once":              {0, nil, nil, false, ""},
		"in time":              {retireAfter, nil, nil, true, ""},
		"a day before":         {retireAfter - 24*time.Hour, nil, nil, false, ""},
		"one is away":          {retireAfter, []Waited{away}, nil, true, CodeCANeeded},
		"one is here":          {retireAfter, []Waited{here}, nil, false, CodeCANeeded},
		"a token":              {retireAfter, []Waited{token}, nil, false, CodeCANeeded},
		"without all of them":  {0, []Waited{away, here, token}, []string{"k1", "away", "here"}, false, ""},
		"without some of them": {0, []Waited{away, here}, []string{"away"}, false, CodeCANeeded},
		"without others":       {0, nil, []string{"gone"}, false, ""},
	} {
		if due := (rotation{made: now.Add(-c.since), now: now}).due(c.waited); due != c.due {
			t.Errorf("%s: due %v", name, due)
		}
		if err := mayRetire(c.waited, c.without); code(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAway(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := rotation{next: "next", now: now}
	for name, c := range map[string]struct {
		seen, enrolled time.Duration
		away           bool
	}{"reports": {time.Minute, 1000 * time.Hour, false}, "silent for a day": {24 * time.Hour, 1000 * time.Hour, false},
		"silent for eight":             {8 * 24 * time.Hour, 1000 * time.Hour, true},
		"joined, and has not reported": {1e6 * time.Hour, time.Minute, false}} {
		if w, _ := r.host(farm.Host{Expires: now.Add(time.Hour), Enrolled: now.Add(-c.enrolled)},
			now.Add(-c.seen)); w.Away != c.away {
			t.Errorf("%s: away %v", name, w.Away)
		}
	}
}
