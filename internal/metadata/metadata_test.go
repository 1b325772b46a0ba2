package metadata

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
)

func testVM() VM {
	return VM{ID: "0b6e8a4c-6a55-4f0e-8f7d-0f5ad4b0a9b1", Name: "web", Project: "atlas", Owner: "ann",
		Hostname: "web.example.org", Cell: "b3", Host: "h1", Image: "cloud", Shape: "small",
		Address: netip.MustParsePrefix("10.1.0.7/16"), MAC: net.HardwareAddr{0x52, 0x54, 10, 1, 0, 7},
		Keys: []string{"ssh-ed25519 AAAA ann", "ssh-rsa BBBB bob"}, UserData: []byte("#!/bin/sh\necho \x00\xff\n"),
		Tags: map[string]string{"role": "web", "a/b": "hidden"}}
}

// testHandler knows testVM, with the card that has its address; nil: the kernel knows of none.
func testHandler(t *testing.T, requireToken bool, card net.HardwareAddr) (*handler, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	find := func(a netip.Addr) (VM, bool) {
		vm := testVM()
		return vm, a == vm.Address.Addr()
	}
	return newHandler(Options{Bridge: "br0", Find: find, RequireToken: requireToken,
		Log: slog.New(slog.NewTextHandler(&log, nil))}, func(a netip.Addr) (net.HardwareAddr, bool) {
		return card, card != nil && a == testVM().Address.Addr()
	}), &log
}

func ask(h http.Handler, method, path, from string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = from + ":4711"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPaths(t *testing.T) {
	h, _ := testHandler(t, false, testVM().MAC)
	const card = "/latest/meta-data/network/interfaces/macs/52:54:0a:01:00:07/"
	for path, want := range map[string]string{
		"/":                                                 "grange\n1.0\n2009-04-04\n2016-09-02\n2018-09-24\n2021-03-23\nlatest",
		"/latest":                                           "meta-data\nuser-data",
		"/latest/":                                          "meta-data\nuser-data",
		"/2009-04-04/meta-data/instance-id":                 testVM().ID,
		"/latest/meta-data/instance-id":                     testVM().ID,
		"/latest/meta-data/local-hostname":                  "web.example.org",
		"/latest/meta-data/hostname":                        "web.example.org",
		"/latest/meta-data/local-ipv4":                      "10.1.0.7",
		"/latest/meta-data/mac":                             "52:54:0a:01:00:07",
		"/latest/meta-data/public-keys":                     "0=key-0\n1=key-1",
		"/latest/meta-data/public-keys/":                    "0=key-0\n1=key-1",
		"/latest/meta-data/public-keys/0":                   "openssh-key",
		"/latest/meta-data/public-keys/0/":                  "openssh-key",
		"/latest/meta-data/placement/":                      "availability-zone",
		"/latest/meta-data/instance-type":                   "small",
		"/latest/meta-data/ami-id":                          "cloud",
		"/latest/meta-data/tags/":                           "instance/",
		"/latest/meta-data/tags/instance":                   "role",
		"/latest/meta-data/tags/instance/role":              "web",
		"/latest/meta-data/network/":                        "interfaces/",
		card + "subnet-ipv4-cidr-block":                     "10.1.0.0/16",
		"/latest/user-data":                                 "#!/bin/sh\necho \x00\xff\n",
		"/latest/meta-data/public-keys/1/openssh-key":       "ssh-rsa BBBB bob",
		"/latest/meta-data/placement/availability-zone":     "b3",
		"/2021-03-23/meta-data/placement/availability-zone": "b3",
		"/latest/meta-data/":                                "ami-id\nami-launch-index\nhostname\ninstance-action\ninstance-id\ninstance-type\nlocal-hostname\nlocal-ipv4\nmac\n" + "network/\nplacement/\npublic-keys/\nreservation-id\ntags/",
	} {
		w := ask(h, "GET", path, "10.1.0.7")
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: status %d, %q; want %q", path, w.Code, w.Body, want)
		}
	}
	for _, path := range []string{"/latest/nosuch", "/1999-01-01/meta-data/", "/latest/meta-data/public-keys/2",
		"/latest/meta-data/inst", "/latest/meta-data/tags/instance/a/b", "/grange", "/x"} {
		if w := ask(h, "GET", path, "10.1.0.7"); w.Code != 404 {
			t.Errorf("%s: status %d, %q", path, w.Code, w.Body)
		}
	}
	var self fleet.Self
	if err := json.Unmarshal(ask(h, "GET", "/grange/v1/vm", "10.1.0.7").Body.Bytes(), &self); err != nil {
		t.Fatal(err)
	}
	vm := testVM()
	if diff := cmp.Diff(fleet.Self{ID: vm.ID, Name: "web", Project: "atlas", Owner: "ann", Hostname: "web.example.org",
		Cell: "b3", Host: "h1", Image: "cloud", Shape: "small", Address: "10.1.0.7/16", MAC: "52:54:0a:01:00:07",
		Keys: vm.Keys, Tags: vm.Tags}, self); diff != "" {
		t.Error(diff)
	}
}

// TestStrangers: nobody gets anything but the VM that leased the address, from its own card, on this bridge.
func TestStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		card net.HardwareAddr
		from string
	}{
		"no VM's address": {testVM().MAC, "10.1.0.8"},
		"another card":    {net.HardwareAddr{0x52, 0x54, 10, 1, 0, 8}, "10.1.0.7"},
		"unknown card":    {nil, "10.1.0.7"},
	} {
		h, log := testHandler(t, false, c.card)
		for _, path := range []string{"/", "/latest/meta-data/instance-id", "/latest/user-data", "/grange/v1/vm",
			"/latest/api/token"} {
			for _, method := range []string{"GET", "PUT"} {
				if w := ask(h, method, path, c.from, lifeHeader, "60"); w.Code != 404 {
					t.Errorf("%s: %s %s: status %d, %q", name, method, path, w.Code, w.Body)
				}
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), c.from) {
			t.Errorf("%s: logged %d lines: %s", name, n, log)
		}
	}
}

func TestRefusals(t *testing.T) {
	h, _ := testHandler(t, false, testVM().MAC)
	for _, c := range []struct {
		method, path string
		header       []string
		want         int
	}{
		{"GET", "/latest/user-data", []string{"X-Forwarded-For", "8.8.8.8"}, 403},
		{"GET", "/latest/user-data", []string{"X-Forwarded-For", ""}, 403},
		{"PUT", "/latest/api/token", []string{lifeHeader, "60", "X-Forwarded-For", "8.8.8.8"}, 403},
		{"POST", "/latest/user-data", nil, 405},
		{"DELETE", "/grange/v1/vm", nil, 405},
		{"GET", "/latest/api/token", nil, 405},
		{"PUT", "/latest/api/token", nil, 400},
		{"PUT", "/latest/api/token", []string{lifeHeader, "0"}, 400},
		{"PUT", "/latest/api/token", []string{lifeHeader, "21601"}, 400},
		{"PUT", "/latest/api/token", []string{lifeHeader, "9223372036854775807"}, 400},
		{"GET", "/latest/meta-data/mac", []string{tokenHeader, "nonsense"}, 401},
		{"HEAD", "/latest/meta-data/mac", nil, 200},
	} {
		if w := ask(h, c.method, c.path, "10.1.0.7", c.header...); w.Code != c.want {
			t.Errorf("%s %s %q: status %d, want %d", c.method, c.path, c.header, w.Code, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := testHandler(t, true, testVM().MAC)
		if w := ask(h, "GET", "/latest/meta-data/mac", "10.1.0.7"); w.Code != 401 {
			t.Errorf("without a token: status %d", w.Code)
		}
		w := ask(h, "PUT", "/latest/api/token", "10.1.0.7", lifeHeader, "60")
		token := w.Body.String()
		if w.Code != 200 || w.Header().Get(lifeHeader) != "60" {
			t.Fatalf("token: status %d, %v", w.Code, w.Header())
		}
		get := func() int { return ask(h, "GET", "/latest/meta-data/mac", "10.1.0.7", tokenHeader, token).Code }
		if got := get(); got != 200 {
			t.Errorf("with the token: status %d", got)
		}
		if h.tokens.good(token, "another VM", time.Now()) {
			t.Error("one VM's token is good for another")
		}
		if newTokens().good(token, testVM().ID, time.Now()) {
			t.Error("a token of another service is good")
		}
		for i := range token {
			for _, c := range []byte("A_") {
				other := token[:i] + string(c) + token[i+1:]
				if other != token && h.tokens.good(other, testVM().ID, time.Now()) && !sameBits(token, other) {
					t.Errorf("a changed token is good: %s for %s", other, token)
				}
			}
		}
		time.Sleep(time.Minute)
		if got := get(); got != 401 {
			t.Errorf("after its time: status %d", got)
		}
	})
}

// sameBits reports whether two texts differ only in the bits that base64 does not use at its end.
func sameBits(a, b string) bool {
	return a[:len(a)-2] == b[:len(b)-2] && len(strings.TrimRight(a, "=")) != len(a)
}

func TestFewConnections(t *testing.T) {
	l := newFewConnections(nil)
	one, other := netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("10.1.0.8")
	for range maxOfOne {
		if !l.enter(one) {
			t.Fatal("refused below the limit")
		}
	}
	if l.enter(one) || !l.enter(other) {
		t.Error("the limit of one address is not that address's alone")
	}
	l.leave(one)
	if !l.enter(one) {
		t.Error("a place that was left is not free")
	}
	for n := 0; n < maxOfAll-maxOfOne-1; n++ {
		if !l.enter(netip.AddrFrom4([4]byte{10, 2, byte(n / 200), byte(n % 200)})) {
			t.Fatalf("refused %d", n)
		}
	}
	if l.enter(netip.MustParseAddr("10.3.0.1")) {
		t.Error("no limit of all")
	}
}
