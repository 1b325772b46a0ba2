package pki

import (
	"crypto/tls"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func rotating(t *testing.T) CAs { return CAs{Present: newCA(t), Next: newCA(t)} }

func TestTwoAuthoritiesAreKept(t *testing.T) {
	cas, seal := rotating(t), Seal{1}
	text, err := cas.Marshal(seal)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCAs(text, seal)
	if err != nil || again.Next == nil || again.Present.Fingerprint() != cas.Present.Fingerprint() ||
		again.Newest().Fingerprint() != cas.Next.Fingerprint() {
		t.Fatal(err)
	}
	newest, err := NewestOf(text)
	if err != nil || Fingerprint(newest) != cas.Next.Fingerprint() {
		t.Error(err)
	}
	if strings.Contains(string(text), "PRIVATE KEY") || Unsealed(text) {
		t.Error("a key is not sealed")
	}
	// A release before rotation reads these fields and no others.
	var before struct {
		Certificate string
		Sealed      []byte
	}
	if err := json.Unmarshal(text, &before); err != nil || before.Certificate != string(cas.Present.PEM()) ||
		len(before.Sealed) == 0 {
		t.Errorf("%+v, %v", before, err)
	}
	// The sealed keys cannot change places.
	swapped := strings.NewReplacer(string(mustJSON(t, cas.Present.PEM())), string(mustJSON(t, cas.Next.PEM())),
		string(mustJSON(t, cas.Next.PEM())), string(mustJSON(t, cas.Present.PEM()))).Replace(string(text))
	if _, err := ParseCAs([]byte(swapped), seal); codeOf(err) != CodeBadSeal {
		t.Errorf("keys in each other's place: %v", err)
	}
}

func mustJSON(t *testing.T, text []byte) []byte {
	t.Helper()
	b, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each client is shown a certificate of an authority that it believes: the newest of those, and the oldest where it
// names none.
func TestChoose(t *testing.T) {
	cas := rotating(t)
	var certs []tls.Certificate
	for _, ca := range cas.All() {
		c, err := ca.IssueServer([]string{"localhost"}, now)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, c)
	}
	old, next := cas.Present.Fingerprint(), cas.Next.Fingerprint()
	for name, c := range map[string]struct {
		protocols []string
		want      int
	}{
		"names none":              {nil, 1},
		"only HTTP":               {[]string{"h2", "http/1.1"}, 1},
		"the old":                 {TrustProtocols(old), 1},
		"the next":                {TrustProtocols(next), 0},
		"both, the old first":     {TrustProtocols(old, next), 0},
		"another fleet's":         {TrustProtocols(newCA(t).Fingerprint()), 1},
		"a prefix of a name":      {TrustProtocols(next[:16]), 1},
		"another's, and the next": {TrustProtocols(newCA(t).Fingerprint(), next), 0},
	} {
		if got := Choose(certs, c.protocols); got != &certs[c.want] {
			t.Errorf("%s: another certificate", name)
		}
	}
}

func TestEndsSoon(t *testing.T) {
	ca := newCA(t).Certificate
	for _, c := range []struct {
		left time.Duration
		want string
	}{{endWarning + time.Hour, ""}, {endWarning - time.Hour, "in 364 days"}, {time.Hour,
		"grange server ca rotate"}, {-time.Hour, "ended at"}} {
		if got := EndsSoon(ca, ca.NotAfter.Add(-c.left)); !strings.Contains(got, c.want) ||
			(got == "") != (c.want == "") {
			t.Errorf("%v before its end: %q", c.left, got)
		}
	}
	if life := ca.NotAfter.Sub(ca.NotBefore); life > 6*365*24*time.Hour {
		t.Errorf("a new authority lasts %v", life)
	}
}

// TestManyTrusted: who believes a whole bundle of a site's says so in a greeting that TLS and what is in between take.
func TestManyTrusted(t *testing.T) {
	size := 0
	for _, p := range TrustProtocols(slices.Repeat([]string{strings.Repeat("f", 64)}, 1000)...) {
		size += 1 + len(p)
	}
	if size > 2<<10 {
		t.Errorf("the protocols take %d bytes", size)
	}
}
