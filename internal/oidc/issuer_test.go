package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc/oidctest"
)

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lab is an issuer for tests, and what the server knows of it.
func lab(t *testing.T, change func(*Config)) (*oidctest.Issuer, *Issuer, *clock) {
	t.Helper()
	real, c := oidctest.New(t), &clock{now: time.Now()}
	real.Now = c.time
	config := Config{Name: "org", URL: real.URL, ClientID: oidctest.ClientID, Secret: oidctest.Secret,
		DeviceClientID: oidctest.DeviceID, Audiences: []string{"grange"}, Roots: real.Roots}
	if change != nil {
		change(&config)
	}
	return real, NewIssuer(config, Options{Log: slog.New(slog.DiscardHandler), Now: c.time}), c
}

func codeOf(err error) farm.Code {
	if own, ok := errors.AsType[*farm.Error](err); ok {
		return own.Code
	}
	return ""
}

// TestBearer holds tokens of programs against all that can be wrong with one.
func TestBearer(t *testing.T) {
	real, i, c := lab(t, nil)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := jose.JSONWebKey{Key: other, KeyID: real.Key().KeyID}
	now := c.time()
	claims := func(more map[string]any) map[string]any { return real.Claims("grange", more) }
	for name, text := range map[string]string{
		"good":                      real.Sign(claims(nil)),
		"good, of the WLCG profile": real.Sign(claims(map[string]any{"wlcg.ver": "1.2"})),
		"good, for two":             real.Sign(claims(map[string]any{"aud": []string{"other", "grange"}})),
		"expired":                   real.Sign(claims(map[string]any{"exp": now.Add(-time.Second).Unix()})),
		"of no subject":             real.Sign(claims(map[string]any{"sub": ""})),
		"of two lines":              real.Sign(claims(map[string]any{"sub": "17\n18"})),
		"without an end":            real.Sign(claims(map[string]any{"exp": nil})),
		"not yet":                   real.Sign(claims(map[string]any{"nbf": now.Add(time.Hour).Unix()})),
		"for another":               real.Sign(real.Claims("other", nil)),
		"for nobody":                real.Sign(claims(map[string]any{"aud": nil})),
		"for sign-ins":              real.Sign(real.Claims(oidctest.ClientID, nil)),
		"of another issuer":         real.Sign(claims(map[string]any{"iss": "https://evil.example"})),
		"of a later profile":        real.Sign(claims(map[string]any{"wlcg.ver": "2.0"})),
		"signed by somebody else":   oidctest.SignWith(t, forged, jose.ES256, claims(nil)),
		"signed with a secret":      oidctest.SignWith(t, []byte(strings.Repeat("s", 64)), jose.HS256, claims(nil)),
		"not signed":                "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.",
		"cut":                       real.Sign(claims(nil))[:100],
		"too long":                  real.Sign(claims(map[string]any{"x": strings.Repeat("x", maxToken)})),
		"no JSON":                   "eyJ.eyJ.x",
	} {
		got, err := NewIssuers(i).Bearer(t.Context(), text)
		if good := strings.HasPrefix(name, "good"); good != (err == nil) || good && got.Subject != "17" ||
			!good && codeOf(err) != farm.CodeNotKnown {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got.Create {
			t.Errorf("%s: a program's token makes a user", name)
		}
	}
	if n := real.Asked["/keys"]; n != 1 {
		t.Errorf("the issuer was asked %d times for its keys", n)
	}
}

// TestNoBearers: an issuer without audiences signs people in, and no programs.
func TestNoBearers(t *testing.T) {
	real, i, _ := lab(t, func(c *Config) { c.Audiences = nil })
	if _, err := NewIssuers(i).Bearer(t.Context(), real.Sign(real.Claims("", nil))); codeOf(err) != farm.CodeNotKnown {
		t.Error(err)
	}
	if len(real.Asked) > 0 {
		t.Errorf("the issuer was asked: %v", real.Asked)
	}
}

// TestRotation: a token by a new key holds at once, one by an old key no more once the new ones were read, and unknown
// keys have the issuer asked now and then.
func TestRotation(t *testing.T) {
	real, i, c := lab(t, nil)
	all := NewIssuers(i)
	check := func(what, text string, good bool) {
		t.Helper()
		if _, err := all.Bearer(t.Context(), text); good != (err == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
	old := real.Sign(real.Claims("grange", nil))
	check("the first key", old, true)
	real.Rotate()
	c.pass(2 * pause)
	check("the next key", real.Sign(real.Claims("grange", nil)), true)
	check("the first key, which is none any more", old, false)
	asked := real.Asked["/keys"]
	for range 100 {
		check("a key that nobody has", old, false)
	}
	if n := real.Asked["/keys"]; n > asked+1 {
		t.Errorf("asked %d times more", n-asked)
	}
}

// TestDown: with the issuer down, keys that are known are used until a limit; then, and where there are none, the error
// says so.
func TestDown(t *testing.T) {
	real, i, c := lab(t, nil)
	all, later := NewIssuers(i), time.Now().Add(999*time.Hour).Unix()
	text := real.Sign(real.Claims("grange", map[string]any{"exp": later}))
	down := func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	real.Answer = down
	if _, err := all.Bearer(t.Context(), text); codeOf(err) != CodeIssuerDown {
		t.Fatalf("down from the beginning: %v", err)
	}
	real.Lock()
	real.Answer = nil
	real.Unlock()
	if _, err := all.Bearer(t.Context(), text); codeOf(err) != CodeIssuerDown {
		t.Errorf("it is asked again at once: %v", err)
	}
	c.pass(2 * pause)
	if _, err := all.Bearer(t.Context(), text); err != nil {
		t.Fatalf("up again: %v", err)
	}
	real.Lock()
	real.Answer = down
	real.Unlock()
	c.pass(keepKeys - time.Hour)
	if _, err := all.Bearer(t.Context(), text); err != nil {
		t.Errorf("down for a while: %v", err)
	}
	c.pass(2 * time.Hour)
	if _, err := all.Bearer(t.Context(), text); codeOf(err) != CodeIssuerDown {
		t.Errorf("down for too long: %v", err)
	}
}

// TestDroppedKey: a key that the issuer has dropped since the server last looked holds no more, however long nobody
// came; an issuer that hangs keeps nobody for longer than once.
func TestDroppedKey(t *testing.T) {
	real, i, c := lab(t, nil)
	all, later := NewIssuers(i), time.Now().Add(999*time.Hour).Unix()
	text := real.Sign(real.Claims("grange", map[string]any{"exp": later}))
	if _, err := all.Bearer(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	real.Rotate()
	c.pass(refreshAfter + time.Minute)
	if _, err := all.Bearer(t.Context(), text); codeOf(err) != farm.CodeNotKnown {
		t.Errorf("by a key that was dropped: %v", err)
	}
	text = real.Sign(real.Claims("grange", map[string]any{"exp": later}))
	if _, err := all.Bearer(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	real.Lock()
	real.Answer = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	real.Unlock()
	c.pass(refreshAfter + time.Minute)
	for range 3 { // the second attempt waits for nothing
		if _, err := all.Bearer(t.Context(), text); err != nil {
			t.Errorf("down: %v", err)
		}
		c.pass(2 * pause)
	}
}

// TestLies: an issuer that is not what it should be is refused.
func TestLies(t *testing.T) {
	elsewhere := oidctest.New(t)
	for name, lie := range map[string]func(*oidctest.Issuer){
		"another name": func(i *oidctest.Issuer) {
			i.Describe = func(doc map[string]any) { doc["issuer"] = elsewhere.URL }
		},
		"keys by plain HTTP": func(i *oidctest.Issuer) {
			plain := strings.Replace(i.URL, "https:", "http:", 1)
			i.Describe = func(doc map[string]any) { doc["jwks_uri"] = plain + "/keys" }
		},
		"no keys": func(i *oidctest.Issuer) { i.Describe = func(doc map[string]any) { delete(doc, "jwks_uri") } },
		"elsewhere": func(i *oidctest.Issuer) {
			i.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
				return true
			}
		},
		"a huge description": func(i *oidctest.Issuer) {
			i.Describe = func(doc map[string]any) { doc["x"] = strings.Repeat("x", maxAnswer) }
		},
		"no JSON": func(i *oidctest.Issuer) {
			i.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
				_, err := w.Write([]byte("<html>"))
				return err == nil
			}
		},
		"an error": func(i *oidctest.Issuer) {
			i.Answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true }
		},
		"a certificate of nobody": func(*oidctest.Issuer) {},
	} {
		t.Run(name, func(t *testing.T) {
			real, i, _ := lab(t, func(c *Config) {
				if name == "a certificate of nobody" {
					c.Roots = nil
				}
			})
			lie(real)
			_, _, err := i.Begin(t.Context(), "https://grange.example/auth/callback")
			if own, ok := errors.AsType[*farm.Error](err); !ok || own.Code != CodeIssuerDown || own.Hint == "" ||
				len(own.Message) > 1000 {
				t.Errorf("%v", err)
			}
		})
	}
	if len(elsewhere.Asked) > 0 {
		t.Errorf("another issuer was asked: %v", elsewhere.Asked)
	}
}

// TestSlow: whoever waits for an issuer goes when its own time is over.
func TestSlow(t *testing.T) {
	real, i, _ := lab(t, nil)
	hold := make(chan struct{})
	defer close(hold)
	real.Answer = func(http.ResponseWriter, *http.Request) bool { <-hold; return false }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := i.Begin(ctx, ""); codeOf(err) != CodeIssuerDown {
		t.Error(err)
	}
}
