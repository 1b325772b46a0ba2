package uplink_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/uplink"
	"github.com/grange-project/grange/internal/waittest"
)

// identity is what a host has on its disk.
func (h *host) identity(t *testing.T) (id uplink.Identity) {
	t.Helper()
	text, err := h.dir.ReadFile(uplink.IdentityFile)
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// believes are how many authorities a host believes.
func (h *host) believes(t *testing.T) int {
	return strings.Count(h.identity(t).CA, "BEGIN CERTIFICATE")
}

func (s *site) ca() hostlink.CAView {
	s.t.Helper()
	v, err := s.Links.CA(context.Background(), root)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *site) waits() string {
	var names []string
	for _, w := range s.ca().Waited {
		names = append(names, w.Name())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// oldAgent is a host of a release that knows nothing of rotation, as far as a server can see: it names nobody whom it
// believes in its greeting, reports no authorities, and passes over what it does not know in answers.
type oldAgent struct {
	http *http.Client
	site *site
}

func (s *site) joinOld(name string) *oldAgent {
	s.t.Helper()
	id, err := uplink.Join(s.t.Context(),
		uplink.JoinOptions{Dir: s.dir(), Server: s.url, Token: s.token(hostlink.JoinOrder{}), Name: name,
			MachineID: name})
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key))
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(id.CA))
	return &oldAgent{&http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}}}, s}
}

func (o *oldAgent) report() error {
	text, err := json.Marshal(fleet.Report{Instance: "old",
		Facts: &fleet.Facts{Capability: fleet.Capability, Instance: "old", Boot: "b", Now: time.Now(),
			Topology: fleet.Topology{Online: "0"}}})
	if err != nil {
		return err
	}
	r, err := http.NewRequest("POST", o.site.url+fleet.RouteReport, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set(fleet.CapabilityHeader, strconv.Itoa(fleet.Capability))
	answer, err := o.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	p := new(api.Problem)
	if err := json.NewDecoder(answer.Body).Decode(p); err != nil {
		return err
	}
	return p
}

// The fleet's authority is replaced while hosts live: two that report, one that is silent, one whose agent is of
// before, one that joins meanwhile by a token of before. Nobody's link breaks but theirs who are cut off, and no VM
// ends.
func TestRotation(t *testing.T) {
	s := newSite(t)
	hosts := []*host{s.join("wn-1"), s.join("wn-2")}
	silent, old := s.join("wn-3"), s.joinOld("wn-4")
	vm := s.vm("web", hosts[0])
	s.eventually("running", func() bool { return s.state(vm.ID) == farm.VMRunning })
	if err := old.report(); err != nil {
		t.Fatal(err)
	}
	s.eventually("facts", func() bool { return len(s.row(silent.id.Host).Facts.Trusts) == 1 })
	silent.stop()
	token := s.token(hostlink.JoinOrder{})
	if _, err := s.Links.RotateCA(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	next := s.ca().Authorities[0].Fingerprint()
	s.stop() // before any host has heard of it
	s.start()
	for _, h := range hosts {
		s.eventually("trusts and has a certificate of the next one", func() bool {
			row := s.row(h.id.Host)
			return slices.Contains(row.Facts.Trusts, next) && row.Issuer == next && row.Before == ""
		})
		if h.believes(t) != 2 {
			t.Errorf("%s believes %d authorities", h.id.Name, h.believes(t))
		}
	}
	if err := old.report(); err != nil {
		t.Errorf("an agent of before: %v", err)
	}
	fifth := &host{Host: newHost(), dir: s.dir()}
	var err error
	if fifth.id, err = uplink.Join(t.Context(),
		uplink.JoinOptions{Dir: fifth.dir, Server: s.url, Token: token, Name: "wn-5", MachineID: "wn-5"}); err != nil {
		t.Fatal(err)
	}
	s.link(fifth)
	hosts = append(hosts, fifth)
	s.eventually("the silent host and the old agent alone are waited for",
		func() bool { return s.waits() == "wn-3 wn-4" })
	hosts[1].stop() // its agent is started anew, with what it has written down
	s.link(hosts[1])
	s.stop()
	s.start()
	s.link(silent) // it comes back in time after all, with its old certificate, and believes the old authority alone
	hosts = append(hosts, silent)
	s.eventually("the old agent alone is waited for", func() bool { return s.waits() == "wn-4" })
	if _, err := s.Links.RetireCA(t.Context(), root, nil); !farm.IsCode(err, hostlink.CodeCANeeded) {
		t.Errorf("retired with an old agent: %v", err)
	}
	if _, err := s.Links.RetireCA(t.Context(), root, []string{"wn-4"}); err != nil {
		t.Fatal(err)
	}
	s.stop() // before any host has heard of that
	s.start()
	for _, h := range hosts {
		s.eventually("believes the next one alone",
			func() bool { return h.believes(t) == 1 && slices.Equal(s.row(h.id.Host).Facts.Trusts, []string{next}) })
	}
	if err := old.report(); err == nil {
		t.Error("a host with a certificate of the retired authority is let in")
	}
	if s.state(vm.ID) != farm.VMRunning {
		t.Errorf("the VM is %s", s.state(vm.ID))
	}
	if vms, _ := hosts[0].Observed(); len(vms) != 1 {
		t.Errorf("the host has %d VMs", len(vms))
	}
	// The one that was cut off joins again.
	again := s.dir()
	if _, err := uplink.Join(t.Context(),
		uplink.JoinOptions{Dir: again, Server: s.url, Token: s.token(hostlink.JoinOrder{Name: "wn-4"}), Name: "wn-4",
			MachineID: "wn-4", Replace: true}); err == nil || !farm.IsCode(err, farm.CodeHostAnswers) {
		t.Errorf("it reported a moment ago: %v", err)
	}
}

// A host does not take over authorities that do not vouch for the server which sends them: it would keep the link that
// it has, and never have another one.
func TestAuthoritiesOfNobody(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return len(s.row(h.id.Host).Facts.Trusts) == 1 })
	h.stop()
	stranger, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	reports, renewals := make(chan bool, 100), make(chan bool, 100)
	lying := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case fleet.RouteReport:
			reports <- true
			json.NewEncoder(w).Encode(fleet.ReportAnswer{Next: 1, Spread: 1, CA: stranger.PEM(),
				Renew: len(renewals) == 0})
		case fleet.RouteRenew:
			renewals <- true
			var asked fleet.RenewRequest
			err := json.NewDecoder(r.Body).Decode(&asked)
			issued, err2 := stranger.IssueHost(h.id.Host, asked.CSR, time.Now())
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			json.NewEncoder(w).Encode(fleet.EnrolAnswer{Certificate: issued.PEM, CA: stranger.PEM()})
		default:
			<-r.Context().Done()
		}
	}))
	lying.Listener = tls.NewListener(lying.Listener,
		apiserver.TLS(s.Links.ListenerCertificates([]string{"127.0.0.1"}).Get))
	lying.Start()
	defer lying.Close()
	before := h.identity(t)
	s.linkTo(h, "https://"+lying.Listener.Addr().String())
	for range 3 { // one with the old certificate, and with the next one
		select {
		case <-reports:
		case <-time.After(waittest.Limit):
			t.Fatal("it does not report")
		}
	}
	h.stop()
	after := h.identity(t)
	if after.CA != before.CA {
		t.Error("it believes a stranger")
	}
	if after.Certificate == before.Certificate {
		t.Error("it did not renew")
	}
}
