package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// linked is a host that joined, without the network between.
type linked struct {
	*lab
	id    string
	name  string
	key   []byte
	chain []*x509.Certificate
}

func (l *lab) joined(name string) *linked {
	l.t.Helper()
	h := &linked{lab: l, name: name}
	_, token, err := l.Links.CreateJoinToken(l.t.Context(), site, hostlink.JoinOrder{Cell: "east"})
	if err != nil {
		l.t.Fatal(err)
	}
	a, err := l.Links.Enrol(l.t.Context(), nil,
		fleet.EnrolRequest{Token: token, CSR: h.request(), Name: name, MachineID: name, Now: l.clock()})
	if err != nil {
		l.t.Fatal(err)
	}
	h.id, h.chain = a.Host, parsed(l.t, a.Certificate)
	return h
}

func (h *linked) request() []byte {
	h.t.Helper()
	var err error
	if h.key, err = pki.NewKey(); err != nil {
		h.t.Fatal(err)
	}
	csr, err := pki.NewRequest(h.key)
	if err != nil {
		h.t.Fatal(err)
	}
	return csr
}

func parsed(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{c}
}

func (h *linked) who() farm.Identity {
	h.t.Helper()
	who, err := h.Links.HostAt(h.t.Context(), h.chain)
	if err != nil {
		h.t.Fatal(err)
	}
	return who
}

func (h *linked) facts(instance, boot string) *fleet.Facts {
	return &fleet.Facts{Capability: fleet.Capability, Instance: instance, Boot: boot, Now: h.clock(),
		Topology: fleet.Topology{Online: "0-15"}}
}

// tell reports, and fails the test when that is refused.
func (h *linked) tell(r fleet.Report) fleet.ReportAnswer {
	h.t.Helper()
	a, err := h.Links.Report(h.t.Context(), h.who(), r)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *linked) refused(r fleet.Report) farm.Code {
	_, err := h.Links.Report(h.t.Context(), h.who(), r)
	return codeOf(err)
}

func codeOf(err error) farm.Code {
	own := new(farm.Error)
	errors.As(err, &own)
	return own.Code
}

func TestCertificateIsRenewed(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	first, who := h.chain, h.who()
	l.pass(20 * 24 * time.Hour)
	// The first answer is lost.
	if _, err := l.Links.Renew(t.Context(), who, fleet.RenewRequest{CSR: h.request()}); err != nil {
		t.Fatal(err)
	}
	a, err := l.Links.Renew(t.Context(), h.who(), fleet.RenewRequest{CSR: h.request()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(a.Certificate, h.key); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Links.HostAt(t.Context(), first); err != nil {
		t.Errorf("the one before, until the next was seen: %v", err)
	}
	h.chain = parsed(t, a.Certificate)
	h.who()
	if _, err := l.Links.HostAt(t.Context(), first); codeOf(err) != farm.CodeRevokedCert {
		t.Errorf("the one before, when the next was seen: %v", err)
	}
	l.pass(29 * 24 * time.Hour)
	h.who()
	l.pass(2 * 24 * time.Hour)
	if _, err := l.Links.HostAt(t.Context(), h.chain); codeOf(err) != pki.CodeCertTime {
		t.Errorf("after its life: %v", err)
	}
}

func TestWhoSpeaksForAHost(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	if got := h.refused(fleet.Report{Instance: "a"}); got != farm.CodeReportFirst {
		t.Errorf("without facts: %q", got)
	}
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "boot 1")})
	h.tell(fleet.Report{Instance: "a"})
	h.tell(fleet.Report{Instance: "b", Facts: h.facts("b", "boot 1")}) // started anew
	if got := h.refused(fleet.Report{Instance: "a"}); got != farm.CodeOtherAgent {
		t.Errorf("the one before: %q", got)
	}
	l.pass(59 * time.Second)
	if got := h.refused(fleet.Report{Instance: "c", Facts: h.facts("c", "boot 2")}); got != farm.CodeOtherAgent {
		t.Errorf("of another boot: %q", got)
	}
	l.pass(time.Second)
	h.tell(fleet.Report{Instance: "c", Facts: h.facts("c", "boot 2")})
	// Another server, or this one started anew, knows it from the store.
	other := &linked{lab: &lab{Server: New(Options{Store: l.store, Log: l.log, Now: l.clock,
		CAKeyFile: l.Links.CAKeyFile}),
		t: t, now: l.now}, id: h.id, chain: h.chain}
	other.tell(fleet.Report{Instance: "c"})
}

func TestClockIsWatched(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	f := h.facts("a", "b")
	f.Now = l.clock().Add(-5 * time.Minute)
	if a := h.tell(fleet.Report{Instance: "a", Facts: f}); a.Clock != -300 {
		t.Errorf("told %v", a.Clock)
	}
	l.Links.WriteSeen(t.Context())
	l.view(func(tx *store.Tx) error {
		row, err := tx.Host(h.id)
		if row.Clock != -5*time.Minute || !row.Seen.Equal(l.clock()) {
			t.Errorf("clock %v, seen %v", row.Clock, row.Seen)
		}
		return err
	})
}

// What a whole report means for VMs: those there, those gone, those lost, those that belong elsewhere.
func TestWholeReport(t *testing.T) {
	l := newLab(t)
	h, other := l.joined("wn-1"), l.joined("wn-2")
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "b")})
	row := func(h *linked) farm.Host { return farm.Host{ID: h.id, Cell: "east"} }
	vm := func(name string, at *linked, state farm.VMState, power farm.Power) farm.VM {
		made, err := l.VMs.Create(t.Context(), root,
			CreateVM{Project: "alice", Name: name, Image: "micro", Shape: "small"})
		if err != nil {
			t.Fatal(err)
		}
		vm := made.VMs[0].VM
		l.put(vm, row(at))
		l.update(func(tx *store.Tx) error {
			now, err := tx.VM(vm.ID)
			if err != nil {
				return err
			}
			now.Wanted.Power = power
			return errors.Join(tx.SetVM(now), tx.SetVMObserved(vm.ID, farm.Observed{State: state, Since: l.clock()}))
		})
		return vm
	}
	runs := vm("runs", h, "", farm.PowerOn)
	lost := vm("lost", h, farm.VMRunning, farm.PowerOn)
	news := vm("news", h, "", farm.PowerOn)
	ends := vm("ends", h, farm.VMRunning, farm.PowerDeleted)
	moved := vm("moved", other, farm.VMRunning, farm.PowerOn)
	list, changed, err := l.Links.Wanted(t.Context(), h.who(), "a", 0)
	if err != nil || !changed || len(list.VMs) != 4 {
		t.Fatalf("%d VMs, %v", len(list.VMs), err)
	}
	says := []fleet.Observed{{ID: runs.ID, State: "running", Since: l.clock()},
		{ID: moved.ID, State: "running", Since: l.clock()}, {ID: "unknown", State: "running", Since: l.clock()}}
	h.tell(fleet.Report{Instance: "a", Whole: true, Wanted: list.Revision - 1, VMs: says}) // looked before it was told
	states := func() map[string]farm.VMState {
		got := map[string]farm.VMState{}
		for _, v := range []farm.VM{runs, lost, news, ends, moved} {
			l.view(func(tx *store.Tx) error {
				row, err := tx.VM(v.ID)
				if action.Missing(err) {
					got[v.Name] = "no row"
					return nil
				}
				got[v.Name] = row.Observed.State
				return err
			})
		}
		return got
	}
	h.tell(fleet.Report{Instance: "a", Whole: true, Wanted: list.Revision, VMs: says})
	want := map[string]farm.VMState{"runs": farm.VMRunning, "lost": farm.VMLost, "news": "", "ends": "no row",
		"moved": farm.VMRunning}
	if d := cmp.Diff(want, states()); d != "" {
		t.Error(d)
	}
	if list, _, err = l.Links.Wanted(t.Context(), h.who(), "a", list.Revision); err != nil {
		t.Fatal(err)
	}
	powers := map[string]string{}
	for _, v := range list.VMs {
		powers[v.ID] = v.Power
	}
	if d := cmp.Diff(map[string]string{runs.ID: "on", news.ID: "on", moved.ID: "deleted"}, powers); d != "" {
		t.Errorf("wanted then:\n%s", d)
	}
	if host, err := l.Hosts.Get(t.Context(), site, h.id); err != nil || len(host.Orphans) != 1 ||
		host.Orphans[0].VM != "unknown" {
		t.Errorf("%+v, %v", host.Orphans, err)
	}
}

// A VM that the server does not know is left alone, told of, and deleted when people say so: whichever server they ask,
// and whichever the host talks to.
func TestOrphans(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "b")})
	says := func(whole bool, vms ...fleet.Observed) {
		t.Helper()
		h.tell(fleet.Report{Instance: "a", Whole: whole, Wanted: 1, VMs: vms})
	}
	wanted := func() map[string]string {
		list, _, err := l.Links.Wanted(t.Context(), h.who(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		powers := map[string]string{}
		for _, v := range list.VMs {
			powers[v.ID] = v.Power
		}
		return powers
	}
	orphans := func(want ...farm.Orphan) {
		t.Helper()
		host, err := l.Hosts.Get(t.Context(), site, "wn-1")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, host.Orphans); d != "" {
			t.Error(d)
		}
		if warned := strings.Contains(strings.Join(host.Warnings, "; "),
			"that the server does not know"); warned != (len(want) > 0) {
			t.Errorf("warnings %q", host.Warnings)
		}
	}
	web, db, twin := farm.Orphan{Host: h.id, VM: "v1", State: farm.VMRunning}, farm.Orphan{Host: h.id, VM: "v2",
		Name: "p/db", State: farm.VMStopped}, farm.Orphan{Host: h.id, VM: "v3", Name: "p/db", State: farm.VMRunning}
	says(true, fleet.Observed{ID: "v1", State: "running"}, fleet.Observed{ID: "v2", State: "stopped", Name: "p/db"},
		fleet.Observed{ID: "v3", State: "running", Name: "p/db"})
	orphans(web, db, twin)
	says(false, fleet.Observed{ID: "v1", State: "running", Name: "p/web"})
	web.Name = "p/web"
	orphans(web, db, twin)
	// an agent that does not tell names
	says(true, fleet.Observed{ID: "v1", State: "running"}, fleet.Observed{ID: "v2", State: "stopped"},
		fleet.Observed{ID: "v3", State: "running"})
	orphans(web, db, twin)
	if d := cmp.Diff(map[string]string{}, wanted()); d != "" {
		t.Errorf("before people said so:\n%s", d)
	}
	for name, c := range map[string]struct {
		who  farm.Identity
		host string
		vms  []string
		want farm.Code
	}{
		"a member":        {ann, "wn-1", []string{"v1"}, farm.CodeNoRole},
		"another host":    {site, "wn-2", []string{"v1"}, action.CodeNoHost},
		"none like this":  {site, "wn-1", []string{"v1", "v9"}, farm.CodeNoVM},
		"one of two":      {site, "wn-1", []string{"p/db"}, farm.CodeNoVM},
		"by name, and ID": {site, "wn-1", []string{"p/web", "v2"}, ""},
	} {
		if _, err := l.Hosts.EvictVMs(t.Context(), c.who, c.host, 0, c.vms); codeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	web.Evicted, db.Evicted = true, true
	orphans(web, db, twin)
	if d := cmp.Diff(map[string]string{"v1": "deleted", "v2": "deleted"}, wanted()); d != "" {
		t.Errorf("then:\n%s", d)
	}
	says(false, fleet.Observed{ID: "v1", State: "deleting"})
	web.State = farm.VMDeleting
	orphans(web, db, twin)
	says(false, fleet.Observed{ID: "v1", State: "gone"})
	orphans(db, twin)
	l.update(func(tx *store.Tx) error { // a backup of the time when it was there
		return tx.InsertVM(farm.VM{ID: "v2", Project: "p", Name: "db", Shape: farm.Shape{CPUs: 1, Memory: farm.GiB},
			Wanted: farm.Wanted{Power: farm.PowerOn}})
	})
	if d := cmp.Diff(map[string]string{}, wanted()); d != "" {
		t.Errorf("known again:\n%s", d)
	}
	says(true, fleet.Observed{ID: "v2", State: "stopped"})
	orphans()
}

// What one host says of orphans is bounded, however many reports it says it in.
func TestManyOrphans(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	h.tell(fleet.Report{Instance: "a", Facts: h.facts("a", "b")})
	says := func(prefix string, n int) {
		t.Helper()
		r := fleet.Report{Instance: "a", Wanted: 1}
		for i := range n {
			r.VMs = append(r.VMs, fleet.Observed{ID: fmt.Sprintf("%s%04d", prefix, i), State: "running"})
		}
		h.tell(r)
	}
	has := func(want int, first string) {
		t.Helper()
		host, err := l.Hosts.Get(t.Context(), site, "wn-1")
		if err != nil || len(host.Orphans) != want || host.Orphans[0].VM != first {
			t.Errorf("%d strangers (%v), not %d from %s on", len(host.Orphans), err, want, first)
		}
	}
	says("b", hostlink.MaxOrphans-1)
	says("a", 5)
	has(hostlink.MaxOrphans, "a0000")
	says(strings.Repeat("x", 1<<10), 1)
	h.tell(fleet.Report{Instance: "a", Wanted: 1,
		VMs: []fleet.Observed{{ID: "b0000", State: "gone"}, {ID: "a0001", State: "stopped"}}})
	has(hostlink.MaxOrphans, "a0000")
	h.tell(fleet.Report{Instance: "a", Wanted: 1, Whole: true,
		VMs: []fleet.Observed{{ID: strings.Repeat("x", 1<<10), State: "running"}, {ID: "c", State: "running"}}})
	has(1, "c")
}

func TestSiteCertificates(t *testing.T) {
	l := newLab(t)
	ca, err := pki.NewCA(l.clock())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	l.Links.Site = &pki.Site{Roots: roots, Field: pki.FieldCN}
	h := &linked{lab: l}
	issued, err := ca.IssueHost("wn-1.example.org", h.request(), l.clock())
	if err != nil {
		t.Fatal(err)
	}
	h.chain = parsed(t, issued.PEM)
	if _, err := l.Links.HostAt(t.Context(), h.chain); codeOf(err) != farm.CodeRevokedCert {
		t.Errorf("before it joined: %v", err)
	}
	_, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Links.Enrol(t.Context(), h.chain,
		fleet.EnrolRequest{Token: token, Name: "wn-2", Now: l.clock()}); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("under another name: %v", err)
	}
	a, err := l.Links.Enrol(t.Context(), h.chain, fleet.EnrolRequest{Token: token, Name: "wn-1.example.org",
		Now: l.clock()})
	if err != nil || len(a.Certificate) != 0 {
		t.Fatalf("%+v %v", a, err)
	}
	if who := h.who(); who.Host != a.Host {
		t.Errorf("%+v", who)
	}
	next, err := ca.IssueHost("wn-1.example.org", h.request(), l.clock()) // the site renews as it likes
	if err != nil {
		t.Fatal(err)
	}
	h.chain = parsed(t, next.PEM)
	h.who()
	if _, err := l.Links.Renew(t.Context(), h.who(),
		fleet.RenewRequest{CSR: h.request()}); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("renewed by us: %v", err)
	}
}

func TestRefusedEnrolmentsAreRecorded(t *testing.T) {
	l := newLab(t)
	l.joined("wn-1")
	_, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east"})
	if err != nil {
		t.Fatal(err)
	}
	h := &linked{lab: l}
	if _, err := l.Links.Enrol(t.Context(), nil,
		fleet.EnrolRequest{Token: token, CSR: h.request(), Name: "wn-1",
			Now: l.clock()}); codeOf(err) != hostlink.CodeHostExists {
		t.Fatal(err)
	}
	entries, err := l.Entries(t.Context(), site, EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[0]; e.Action != string(action.EnrolHost) || e.Outcome != action.Denied || e.Target != "wn-1" {
		t.Errorf("%+v", e)
	}
	if _, _, err := l.Links.CreateJoinToken(t.Context(), ann,
		hostlink.JoinOrder{Cell: "east"}); codeOf(err) != farm.CodeNoRole {
		t.Errorf("a member makes a join token: %v", err)
	}
}

// TestUnknownJoinTokensWriteNothing: neither they nor the repeated refusals of a real one grow anything, and a valid
// one is taken after them.
func TestUnknownJoinTokensWriteNothing(t *testing.T) {
	l := newLab(t)
	_, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east"})
	if err != nil {
		t.Fatal(err)
	}
	cas, err := l.Links.Authorities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := (&linked{lab: l}).request()
	enrol := func(token string) error {
		_, err := l.Links.Enrol(t.Context(), nil,
			fleet.EnrolRequest{Token: token, CSR: request, Name: "wn-1", Now: l.clock()})
		return err
	}
	before, err := l.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := enrol(pki.NewJoinToken(cas.Present.Certificate).String()); codeOf(err) != hostlink.CodeJoinRefused {
			t.Fatal(err)
		}
	}
	if after, err := l.Revision(t.Context()); err != nil || after != before {
		t.Errorf("the store went from revision %d to %d, %v", before, after, err)
	}
	if err := enrol(token); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := enrol(token); codeOf(err) != hostlink.CodeJoinRefused {
			t.Fatal(err)
		}
	}
	entries, err := l.Entries(t.Context(), site, EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if refused := len(slices.DeleteFunc(entries,
		func(e farm.Entry) bool { return e.Outcome != action.Denied })); refused != 3 {
		t.Errorf("200 refusals of a token that is used up left %d entries", refused)
	}
}

func TestATokenTakenBackLetsNobodyJoin(t *testing.T) {
	l := newLab(t)
	k, token, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east", Count: 3,
		Once: "rack"})
	if err != nil {
		t.Fatal(err)
	}
	enrol := func(name string) error {
		_, err := l.Links.Enrol(t.Context(), nil,
			fleet.EnrolRequest{Token: token, CSR: (&linked{lab: l}).request(), Name: name, MachineID: name,
				Now: l.clock()})
		return err
	}
	if err := enrol("wn-1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Links.DeleteJoinToken(t.Context(), ann, k.ID); codeOf(err) != action.CodeNoToken {
		t.Errorf("a member takes it back: %v", err)
	}
	if err := l.Links.DeleteJoinToken(t.Context(), site, k.ID); err != nil {
		t.Fatal(err)
	}
	if err := enrol("wn-2"); codeOf(err) != hostlink.CodeJoinRefused {
		t.Errorf("joined by a token that was taken back: %v", err)
	}
	if _, err := l.Hosts.Get(t.Context(), site, "wn-1"); err != nil {
		t.Errorf("the host that had joined: %v", err)
	}
	if _, _, err := l.Links.CreateJoinToken(t.Context(), site,
		hostlink.JoinOrder{Cell: "east", Count: 3, Once: "rack"}); codeOf(err) != action.CodeNoToken {
		t.Errorf("the request that made it, again: %v", err)
	}
}
