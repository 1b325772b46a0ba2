package uplink_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/uplink"
)

func codeOf(err error) farm.Code {
	own := new(farm.Error)
	if !errors.As(err, &own) {
		return ""
	}
	return own.Code
}

func TestJoinRefused(t *testing.T) {
	s := newSite(t)
	host := s.join("wn-1")
	s.eventually("it reports", func() bool { return s.row(host.id.Host).Facts.Instance != "" })
	spent := s.token(hostlink.JoinOrder{})
	joined := s.dir()
	if _, err := uplink.Join(t.Context(),
		uplink.JoinOptions{Dir: joined, Server: s.url, Token: spent, Name: "wn-2"}); err != nil {
		t.Fatal(err)
	}
	stranger, err := pki.NewCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.Links.Authorities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	good := func() string { return s.token(hostlink.JoinOrder{}) }
	for _, tt := range []struct {
		name string
		o    uplink.JoinOptions
		want farm.Code
	}{
		{"no token", uplink.JoinOptions{Name: "wn-9", Token: "grange-join-x"}, pki.CodeBadJoin},
		{"no URL", uplink.JoinOptions{Name: "wn-9", Token: good(), Server: "server"}, uplink.CodeBadServer},
		{"nobody there", uplink.JoinOptions{Name: "wn-9", Token: good(), Server: "https://" + closed.Addr().String()},
			uplink.CodeServerAway},
		{"another name of the server",
			uplink.JoinOptions{Name: "wn-9", Token: good(),
				Server: strings.Replace(s.url, "127.0.0.1", "localhost", 1)}, uplink.CodeServerName},
		{"a token of another fleet",
			uplink.JoinOptions{Name: "wn-9", Token: pki.NewJoinToken(stranger.Certificate).String()},
			uplink.CodeServerCA},
		{"a token that was never made",
			uplink.JoinOptions{Name: "wn-9", Token: pki.NewJoinToken(own.Present.Certificate).String()},
			hostlink.CodeJoinRefused},
		{"a token that has ended", uplink.JoinOptions{Name: "wn-9",
			Token: s.token(hostlink.JoinOrder{Valid: time.Nanosecond})}, hostlink.CodeJoinRefused},
		{"a token that was used", uplink.JoinOptions{Name: "wn-9", Token: spent}, hostlink.CodeJoinRefused},
		{"a token for another host", uplink.JoinOptions{Name: "wn-9", Token: s.token(hostlink.JoinOrder{Name: "wn-8"})},
			hostlink.CodeJoinRefused},
		{"no name", uplink.JoinOptions{Name: "WN 9", Token: good()}, hostlink.CodeJoinOrder},
		{"joined already", uplink.JoinOptions{Dir: joined, Name: "wn-9", Token: good()}, uplink.CodeJoined},
		{"the name is another's", uplink.JoinOptions{Name: "wn-1", Token: good()}, hostlink.CodeHostExists},
		{"the name is another machine's",
			uplink.JoinOptions{Name: "wn-1", Token: good(), Replace: true, MachineID: "other"},
			hostlink.CodeJoinRefused},
		{"a clone", uplink.JoinOptions{Name: "wn-9", Token: good(), MachineID: "wn-1"}, hostlink.CodeClonedHost},
		{"the machine-id of a host that runs",
			uplink.JoinOptions{Name: "wn-1", Token: good(), Replace: true, MachineID: "wn-1"},
			hostlink.CodeJoinRefused},
		{"in the place of a host that runs",
			uplink.JoinOptions{Name: "wn-1", Token: s.token(hostlink.JoinOrder{Name: "wn-1"}), Replace: true,
				MachineID: "other"}, farm.CodeHostAnswers},
		{"in its own place", uplink.JoinOptions{Dir: host.dir, Name: "wn-1", Token: good(), Replace: true,
			MachineID: "wn-1"}, ""},
		{"in its own place, as that was kept",
			uplink.JoinOptions{Dir: host.dir, Name: "wn-1", Token: s.token(hostlink.JoinOrder{Name: "wn-1"}),
				Replace: true, MachineID: "other"}, ""},
	} {
		if tt.o.Server == "" {
			tt.o.Server = s.url
		}
		if tt.o.Dir == nil {
			tt.o.Dir = s.dir()
		}
		_, err := uplink.Join(t.Context(), tt.o)
		if got := codeOf(err); got != tt.want || err != nil && got == "" {
			t.Errorf("%s: %q, want %q: %v", tt.name, got, tt.want, err)
		}
		if token, ok := strings.CutPrefix(tt.o.Token, "grange-join-"); ok && err != nil && len(token) > 50 &&
			strings.Contains(err.Error(), token[9:41]) {
			t.Errorf("%s: the secret is in %v", tt.name, err)
		}
	}
}

// The clocks are said to be apart, and by how much: by the server when certificates still hold, else by the host, which
// asks.
func TestClocksApart(t *testing.T) {
	for _, tt := range []struct {
		server time.Duration
		want   farm.Code
		says   string // expression: the clock goes on while it is compared
	}{
		{30 * time.Minute, hostlink.CodeClockOff, `(30|29)m[0-9]+s behind`},
		{-30 * time.Minute, hostlink.CodeClockOff, `(30|29)m[0-9]+s ahead of`},
		{24 * time.Hour, uplink.CodeServerTime, "valid from"},
	} {
		s := newSiteAt(t, tt.server)
		_, err := uplink.Join(t.Context(),
			uplink.JoinOptions{Dir: s.dir(), Server: s.url, Token: s.token(hostlink.JoinOrder{}), Name: "wn-1"})
		if codeOf(err) != tt.want || !regexp.MustCompile(tt.says).MatchString(err.Error()) {
			t.Errorf("%v: %v", tt.server, err)
		}
	}
}

// says keeps what a link says is wrong.
type says struct {
	slog.Handler
	mu    sync.Mutex
	codes []farm.Code
}

func (s *says) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if code, ok := a.Value.Any().(farm.Code); ok {
			s.mu.Lock()
			s.codes = append(s.codes, code)
			s.mu.Unlock()
		}
		return true
	})
	return nil
}

func (s *says) said(code farm.Code) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.codes {
		if c == code {
			return true
		}
	}
	return false
}

// second links another agent with the identity of a host, and returns what that one says.
func (s *site) second(h *host, as *sim.Host) *says {
	s.t.Helper()
	heard := &says{Handler: slog.DiscardHandler}
	l, err := uplink.New(uplink.Options{Dir: h.dir, Host: as, Log: slog.New(alwaysOn{heard})})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { l.Run(ctx) })
	s.t.Cleanup(func() { cancel(); all.Wait() })
	return heard
}

// alwaysOn is a handler that takes every record.
type alwaysOn struct{ *says }

func (alwaysOn) Enabled(context.Context, slog.Level) bool { return true }

func TestAnotherMachineSpeaksForAHost(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	first := s.row(h.id.Host).Facts.Instance
	heard := s.second(h, newHost()) // of another boot
	s.eventually("refused", func() bool { return heard.said(farm.CodeOtherAgent) })
	if got := s.row(h.id.Host).Facts.Instance; got != first {
		t.Errorf("the clone took over: %s", got)
	}
}

func TestAgentStartedAnewTakesOver(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	first := s.row(h.id.Host).Facts.Instance
	h.stop()
	h.Restart()
	s.link(h)
	s.eventually("taken over", func() bool { return s.row(h.id.Host).Facts.Instance != first })
}

func TestRevoked(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	h.stop()
	old := *h
	s.fence("wn-1")
	if _, err := uplink.Join(t.Context(),
		uplink.JoinOptions{Dir: s.dir(), Server: s.url, Token: s.token(hostlink.JoinOrder{Name: "wn-1"}), Name: "wn-1",
			Replace: true, MachineID: "other"}); err != nil {
		t.Fatal(err)
	}
	heard := s.second(&old, h.Host)
	s.eventually("refused", func() bool { return heard.said(farm.CodeRevokedCert) })
	gone := s.join("wn-2")
	gone.stop()
	if err := s.Hosts.Forget(t.Context(), root, "wn-2", 0); err != nil {
		t.Fatal(err)
	}
	heard = s.second(gone, gone.Host)
	s.eventually("refused", func() bool { return heard.said(farm.CodeRevokedCert) })
}

// fence has an operator's word that nothing of a host runs.
func (s *site) fence(name string) {
	s.t.Helper()
	s.update(func(tx *store.Tx) error {
		h, err := tx.HostNamed(name)
		h.Fenced = s.now()
		return errors.Join(err, tx.SetHost(h))
	})
}

// Another fleet's server where a host's was.
func TestAnotherFleet(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	h.stop()
	s.stop()
	other := newSiteOn(t, s.address)
	heard := other.second(h, h.Host)
	other.eventually("refused", func() bool { return heard.said(uplink.CodeServerCA) })
}

func TestCapability(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	h.stop()
	pair, err := tls.X509KeyPair([]byte(h.id.Certificate), []byte(h.id.Key))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(h.id.CA))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{pair}}}}
	defer client.CloseIdleConnections()
	for capability, want := range map[int]int{0: http.StatusConflict, fleet.Capability: http.StatusBadRequest,
		fleet.Capability + 2: http.StatusBadRequest, fleet.Capability + 3: http.StatusConflict} {
		r, err := http.NewRequest(http.MethodPost, s.url+fleet.RouteReport, strings.NewReader("no JSON"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(fleet.CapabilityHeader, strconv.Itoa(capability))
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("capability %d: %s", capability, answer.Status)
		}
	}
	if v, err := s.Hosts.Get(t.Context(), root, "wn-1"); err != nil || len(v.Warnings) == 0 ||
		!strings.Contains(v.Warnings[0], "refused") {
		t.Errorf("nothing is shown of the refusals: %v %v", v.Warnings, err)
	}
}

// People see at the host why its agent is not listened to, until it is.
func TestRefusedAgentIsShown(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	s.eventually("facts", func() bool { return s.row(h.id.Host).Facts.Instance != "" })
	h.stop()
	warnings := func() string {
		v, err := s.Hosts.Get(t.Context(), root, "wn-1")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(v.Warnings, "\n")
	}
	for capability, want := range map[int][]string{
		0:                    {"agent-too-old", "update grange on the host"},
		fleet.Capability + 3: {"agent-too-new", "update the server first"},
	} {
		if err := s.Links.Admit(h.id.Host, capability); err == nil {
			t.Errorf("capability %d is let in", capability)
		}
		for _, text := range want {
			if got := warnings(); !strings.Contains(got, text) {
				t.Errorf("capability %d: %q is not in %q", capability, text, got)
			}
		}
	}
	s.link(h)
	s.eventually("no warning", func() bool { return !strings.Contains(warnings(), "refused") })
}

// The host is told what is wrong with its link, and when nothing is any more.
func TestLinkTells(t *testing.T) {
	s := newSite(t)
	h := s.join("wn-1")
	h.stop()
	s.stop()
	told := make(chan error, 10)
	l, err := uplink.New(uplink.Options{Dir: h.dir, Host: h.Host, Log: slog.New(slog.DiscardHandler),
		Tell: func(wrong error) { told <- wrong }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { l.Run(ctx) })
	if wrong := <-told; !farm.IsCode(wrong, uplink.CodeServerAway) {
		t.Errorf("told %v", wrong)
	}
	s.start()
	if wrong := <-told; wrong != nil {
		t.Errorf("told %v", wrong)
	}
	cancel()
	all.Wait()
}

// Without a certificate, or with somebody else's, nobody may ask what hosts ask.
func TestOnlyHostsMayAsk(t *testing.T) {
	s := newSite(t)
	s.join("wn-1")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for _, route := range []string{fleet.RouteReport, fleet.RouteRenew, fleet.RouteStream + "x"} {
		answer, err := client.Post(s.url+route, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", route, answer.Status)
		}
	}
}

// A server that is reached by its address has a certificate of that address: one that the same authority gave to
// another name is not enough, as where the authority is the site's, which vouches for everybody there.
func TestServerOfAnotherAddress(t *testing.T) {
	s := newSite(t)
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	shown := s.Links.ListenerCertificates([]string{"www.example.org"})
	other.Listener = tls.NewListener(other.Listener, apiserver.TLS(shown.Get))
	other.Start()
	defer other.Close()
	address := "https://" + other.Listener.Addr().String()
	o := uplink.JoinOptions{Dir: s.dir(), Server: address, Token: s.token(hostlink.JoinOrder{}), Name: "wn-1"}
	if _, err := uplink.Join(t.Context(), o); codeOf(err) != uplink.CodeServerName {
		t.Errorf("it joins by it: %v", err)
	}
}
