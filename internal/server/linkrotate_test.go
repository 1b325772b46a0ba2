package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// reports has a host report that it believes some authorities; none: as an agent of before.
func (h *linked) reports(trusts ...string) fleet.ReportAnswer {
	h.t.Helper()
	f := h.facts("a", "b")
	f.Trusts = trusts
	return h.tell(fleet.Report{Instance: "a", Facts: f})
}

func (h *linked) renews() {
	h.t.Helper()
	a, err := h.Links.Renew(h.t.Context(), h.who(), fleet.RenewRequest{CSR: h.request()})
	if err != nil {
		h.t.Fatal(err)
	}
	h.chain = parsed(h.t, a.Certificate)
}

func (l *lab) ca() hostlink.CAView {
	l.t.Helper()
	v, err := l.Links.CA(l.t.Context(), site)
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

// waits are the names of those whom a rotation waits for.
func waits(v hostlink.CAView) string {
	var names []string
	for _, w := range v.Waited {
		names = append(names, w.Name())
	}
	return strings.Join(names, " ")
}

// another is a second server on the same store, which does not follow the change feed: it has to find out by itself.
func (l *lab) another() *lab {
	s := New(Options{Store: l.store, Log: slog.New(slog.DiscardHandler), Now: l.clock, CAKeyFile: l.Links.CAKeyFile})
	return &lab{Server: s, t: l.t, now: l.clock()}
}

func TestRotation(t *testing.T) {
	l := newLab(t)
	h, silent := l.joined("wn-1"), l.joined("wn-2")
	old := l.joinedFingerprint()
	h.reports(old)
	silent.reports(old)
	other := l.another()
	if _, err := other.Links.HostAt(t.Context(), h.chain); err != nil { // it knows the one authority
		t.Fatal(err)
	}
	k, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east", Valid: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Links.RetireCA(t.Context(), site, nil); code(err) != hostlink.CodeNoRotation {
		t.Errorf("nothing to retire: %v", err)
	}
	if _, err := l.Links.RotateCA(t.Context(), otto); code(err) != farm.CodeNoRole {
		t.Errorf("an operator: %v", err)
	}
	v, err := l.Links.RotateCA(t.Context(), site)
	if err != nil || len(v.Authorities) != 2 {
		t.Fatal(v, err)
	}
	next := v.Authorities[0].Fingerprint()
	if _, err := l.Links.RotateCA(t.Context(), site); code(err) != hostlink.CodeCARotates {
		t.Errorf("a second time: %v", err)
	}
	if got := waits(v); got != "wn-1 wn-2 "+k.ID {
		t.Errorf("waits for %q", got)
	}
	if parsed, err := pki.ParseJoinToken(token); err != nil || parsed.Fingerprint != old {
		t.Error(parsed, err)
	}
	if made, err := pki.ParseJoinToken(l.joinToken()); err != nil || made.Fingerprint != next {
		t.Error("a new token expects the old authority")
	}
	// The host is told, trusts, renews, and the other server lets it in, which has not heard of the rotation.
	a := h.reports(old)
	if !strings.Contains(string(a.CA), "BEGIN") || strings.Count(string(a.CA), "BEGIN") != 2 || !a.Renew {
		t.Fatalf("told %d bytes, renew %v", len(a.CA), a.Renew)
	}
	first := h.chain
	h.renews()
	if _, err := other.Links.HostAt(t.Context(), h.chain); err != nil {
		t.Errorf("another server: %v", err)
	}
	if a := h.reports(next, old); a.CA != nil || a.Renew {
		t.Errorf("told again: %q, renew %v", a.CA, a.Renew)
	}
	if got := waits(l.ca()); got != "wn-2 "+k.ID {
		t.Errorf("waits for %q", got)
	}
	// A host joins by the token of before; then nobody but the silent one needs the old authority.
	third := &linked{lab: l, name: "wn-3"}
	answer, err := l.Links.Enrol(t.Context(), nil, fleet.EnrolRequest{Token: token, CSR: third.request(), Name: "wn-3",
		MachineID: "wn-3", Now: l.clock()})
	if err != nil || strings.Count(string(answer.CA), "BEGIN") != 2 {
		t.Fatal(err)
	}
	third.id, third.chain = answer.Host, parsed(t, answer.Certificate)
	third.reports(next, old)
	if got := waits(l.ca()); got != "wn-2" {
		t.Errorf("waits for %q", got)
	}
	if _, err := l.Links.RetireCA(t.Context(), site, nil); code(err) != hostlink.CodeCANeeded ||
		!strings.Contains(err.Error(), "wn-2") {
		t.Errorf("the silent host is cut off unasked: %v", err)
	}
	if v, err = l.Links.RetireCA(t.Context(), site, []string{"wn-2"}); err != nil || len(v.Authorities) != 1 ||
		v.Authorities[0].Fingerprint() != next || v.Authorities[0].Hosts != 2 {
		t.Fatal(v, err)
	}
	for name, s := range map[string]*lab{"the server": l, "another server": other} {
		if s == other {
			s.hub.Miss(l.revision()) // as the feed has it do
		}
		if _, err := s.Links.HostAt(t.Context(), h.chain); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for what, chain := range map[string]*linked{"silent": silent, "before": {chain: first}} {
			if _, err := s.Links.HostAt(t.Context(), chain.chain); code(err) != pki.CodeUnknownCert {
				t.Errorf("%s takes a certificate of the retired authority, %s: %v", name, what, err)
			}
		}
	}
	if a := h.reports(next, old); strings.Count(string(a.CA), "BEGIN") != 1 {
		t.Error("the host is not told that the old one is retired")
	}
	entries, err := l.Entries(t.Context(), site, EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		if strings.HasPrefix(e.Action, "ca.") {
			lines = append(lines, e.Action+" "+e.Outcome)
		}
	}
	slices.Reverse(lines)
	if got := strings.Join(lines, ", "); got != "ca.retire failed, ca.rotate denied, ca.rotate done, ca.rotate "+
		"failed, ca.retire failed, ca.retire done" {
		t.Error(got)
	}
}

func (l *lab) joinToken() string {
	l.t.Helper()
	_, text, err := l.Links.CreateJoinToken(l.t.Context(), site, hostlink.JoinOrder{Cell: "east"})
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// The server that began a rotation dies at any step; the next one goes on, and ends it by itself in time.
func TestRotationEndsByItself(t *testing.T) {
	l := newLab(t)
	h, before, silent := l.joined("wn-1"), l.joined("wn-2"), l.joined("wn-3")
	old := l.joinedFingerprint()
	v, err := l.Links.RotateCA(t.Context(), site)
	if err != nil {
		t.Fatal(err)
	}
	next := v.Authorities[0].Fingerprint()
	restart := func() {
		again := l.another().Server
		for _, one := range []*lab{l, h.lab, before.lab, silent.lab} {
			one.Server = again
		}
	}
	due := func() bool {
		t.Helper()
		if err := l.Links.RetireDue(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		return len(l.ca().Authorities) == 1
	}
	restart()
	if a := h.reports(old); len(a.CA) == 0 || !a.Renew {
		t.Fatalf("after a restart: %+v", a)
	}
	restart()
	h.renews()
	restart()
	h.reports(next, old)
	if due() {
		t.Error("it ended at once")
	}
	for range 3 { // certificates are renewed as they are by agents of before
		l.pass(14 * 24 * time.Hour)
		before.renews()
		before.reports()
		h.renews()
		h.reports(next, old)
	}
	if got := waits(l.ca()); got != "wn-2" {
		t.Errorf("waits for %q", got)
	}
	if due() {
		t.Error("it did not wait for the agent of before")
	}
	restart()
	before.reports(next, old) // updated
	if due() {
		t.Error("it ended at the first look")
	}
	if !due() {
		t.Error("it did not end")
	}
	restart()
	for _, one := range []*linked{h, before} {
		one.who()
	}
	if _, err := l.Links.HostAt(t.Context(), silent.chain); err == nil {
		t.Error("the silent host is let in")
	}
}

// TestClockAheadRetiresNothing has a server whose clock jumps ahead by months while a host lives that needs the present
// authority.
func TestClockAheadRetiresNothing(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	if _, err := l.Links.RotateCA(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	l.pass(25 * 24 * time.Hour)
	h.renews()
	h.reports()
	l.pass(10 * 24 * time.Hour) // the jump: the host was not heard of for so long, by this clock
	for range 3 {
		if err := l.Links.RetireDue(t.Context(), l.epoch()); err != nil {
			t.Fatal(err)
		}
		h.reports()
	}
	if n := len(l.ca().Authorities); n != 2 {
		t.Errorf("%d authorities are left", n)
	}
}

// Hosts are asked to renew some at a time.
func TestRenewalsAreSpread(t *testing.T) {
	l := newLab(t)
	var hosts []*linked
	for i := range 30 {
		hosts = append(hosts, l.joined("wn-"+strings.Repeat("x", i+1)))
	}
	if _, err := l.Links.RotateCA(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, h := range hosts {
		if h.reports("old").Renew {
			asked++
		}
	}
	if asked != 20 {
		t.Errorf("%d of 30 are asked at once", asked)
	}
}

// The listener shows each client an authority that it believes, and follows another server's rotation by the change
// feed.
func TestListenerCertificates(t *testing.T) {
	l := newLab(t)
	old := l.joinedFingerprint()
	shown := l.Links.ListenerCertificates([]string{"localhost"})
	issuer := func(protocols []string) string {
		t.Helper()
		near, far := net.Pipe()
		defer near.Close()
		go tls.Server(far, &tls.Config{GetCertificate: shown.Get, NextProtos: []string{"http/1.1"}}).HandshakeContext(
			t.Context())
		c := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err := c.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return pki.Fingerprint(c.ConnectionState().PeerCertificates[1])
	}
	if issuer(nil) != old {
		t.Error("another authority")
	}
	v, err := l.another().Links.RotateCA(t.Context(), site)
	if err != nil {
		t.Fatal(err)
	}
	next := v.Authorities[0].Fingerprint()
	l.hub.Tell([]store.Change{{Kind: store.KindSetting, ID: hostlink.AuthoritySetting, Revision: l.revision()}},
		l.revision())
	if issuer(nil) != old || issuer(pki.TrustProtocols(old)) != old || issuer(pki.TrustProtocols(old, next)) != next {
		t.Error("not what the client believes")
	}
	if _, err := l.Links.RetireCA(t.Context(), site, nil); err != nil {
		t.Fatal(err)
	}
	if issuer(nil) != next || issuer(pki.TrustProtocols(old)) != next {
		t.Error("the retired authority is shown")
	}
}

func (l *lab) revision() int64 {
	l.t.Helper()
	r, err := l.Revision(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// A host that does not renew, however often it reports, does not keep the others from being asked to.
func TestRenewalsOfOthers(t *testing.T) {
	l := newLab(t)
	idle, h := l.joined("wn-1"), l.joined("wn-2")
	if _, err := l.Links.RotateCA(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for range 100 {
		if idle.reports(l.joinedFingerprint()).Renew {
			asked++
		}
	}
	if asked == 0 {
		t.Error("it is not asked to renew")
	}
	if !h.reports(l.joinedFingerprint()).Renew {
		t.Errorf("after %d requests to one host the other one is not asked to renew", asked)
	}
	l.now = l.now.Add(hostlink.AskRenewal)
	if !idle.reports(l.joinedFingerprint()).Renew {
		t.Error("it is not asked again")
	}
}

// A host whose session goes on through a server's restart, for its poll was asked again by itself, reports no facts to
// the new one: that knows of the store whom the host believes.
func TestRotationOfASessionThatGoesOn(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	old := l.joinedFingerprint()
	h.reports(old)
	if _, err := l.Links.RotateCA(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	h.lab = l.another()
	if a := h.tell(fleet.Report{Instance: "a", Whole: true}); strings.Count(string(a.CA), "BEGIN CERTIFICATE") != 2 {
		t.Errorf("it believes %s and is told %d bytes of the authorities", old, len(a.CA))
	}
}

func (l *lab) joinedFingerprint() string {
	l.t.Helper()
	cas, err := l.Links.Authorities(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return cas.Present.Fingerprint()
}
