package oidc

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc/oidctest"
)

const redirect = "https://grange.example/auth/callback"

// TestTrip is a browser's way there and back, with all that can be mixed up on it.
func TestTrip(t *testing.T) {
	real, i, _ := lab(t, func(c *Config) { c.CreateUsers, c.NameClaim = true, "preferred_username" })
	begin := func() (string, Trip) {
		to, trip, err := i.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		return to, trip
	}
	to, trip := begin()
	back := real.Authorize(to, map[string]any{"preferred_username": "ann"})
	claims, err := i.End(t.Context(), trip, back, redirect)
	if err != nil || claims.Subject != "17" || claims.Issuer != "org" || claims.All["preferred_username"] != "ann" ||
		!claims.Create || claims.NameClaim != "preferred_username" {
		t.Fatalf("%+v, %v", claims, err)
	}
	if _, err := i.End(t.Context(), trip, back, redirect); codeOf(err) != farm.CodeNotKnown {
		t.Errorf("the code again: %v", err)
	}
	for name, change := range map[string]func(*Trip, map[string]any){
		"another's verifier":       func(trip *Trip, _ map[string]any) { trip.Verifier = "x" },
		"another's nonce":          func(_ *Trip, c map[string]any) { c["nonce"] = "x" },
		"no nonce":                 func(_ *Trip, c map[string]any) { c["nonce"] = nil },
		"a token for another":      func(_ *Trip, c map[string]any) { c["aud"] = "other" },
		"given to another":         func(_ *Trip, c map[string]any) { c["azp"] = "other" },
		"for two, given to nobody": func(_ *Trip, c map[string]any) { c["aud"] = []string{oidctest.ClientID, "other"} },
		"of another issuer":        func(_ *Trip, c map[string]any) { c["iss"] = "https://evil.example" },
		"expired":                  func(_ *Trip, c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() },
	} {
		to, trip := begin()
		claims := map[string]any{}
		change(&trip, claims)
		back := real.Authorize(to, claims)
		if got, err := i.End(t.Context(), trip, back, redirect); codeOf(err) != farm.CodeNotKnown {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestNamedAnswers: an issuer that says that it names itself in each answer is not believed without.
func TestNamedAnswers(t *testing.T) {
	for _, names := range []bool{false, true} {
		real, i, _ := lab(t, nil)
		real.Describe = func(doc map[string]any) { doc["authorization_response_iss_parameter_supported"] = names }
		for iss, good := range map[string]bool{real.URL: true, "": !names, "https://evil.example": false} {
			to, trip, err := i.Begin(t.Context(), redirect)
			if err != nil {
				t.Fatal(err)
			}
			back := real.Authorize(to, nil)
			if back.Set("iss", iss); iss == "" {
				back.Del("iss")
			}
			if _, err := i.End(t.Context(), trip, back, redirect); good != (err == nil) {
				t.Errorf("an answer of %q, of an issuer that names itself, %v: %v", iss, names, err)
			}
		}
	}
}

// TestUserInfo adds claims of the same subject, and none of another.
func TestUserInfo(t *testing.T) {
	real, i, _ := lab(t, func(c *Config) { c.UserInfo = true })
	for subject, good := range map[string]bool{"17": true, "18": false} {
		real.UserInfo = map[string]any{"sub": subject, "groups": []string{"it"}, "name": "of userinfo"}
		to, trip, err := i.Begin(t.Context(), redirect)
		if err != nil {
			t.Fatal(err)
		}
		back := real.Authorize(to, map[string]any{"name": "of the token"})
		claims, err := i.End(t.Context(), trip, back, redirect)
		if good != (err == nil) || good && (claims.All["groups"] == nil || claims.All["name"] != "of the token") {
			t.Errorf("subject %s: %+v, %v", subject, claims, err)
		}
	}
}

// TestIdentity takes identity tokens of command lines: made for them, and just now.
func TestIdentity(t *testing.T) {
	real, i, c := lab(t, nil)
	now := c.time()
	for name, claims := range map[string]map[string]any{
		"good":            real.Claims(oidctest.DeviceID, nil),
		"of a browser":    real.Claims(oidctest.ClientID, nil),
		"of a program":    real.Claims("grange", nil),
		"old":             real.Claims(oidctest.DeviceID, map[string]any{"iat": now.Add(-time.Hour).Unix()}),
		"of no known age": real.Claims(oidctest.DeviceID, map[string]any{"iat": nil}),
		"with a scope":    real.Claims(oidctest.DeviceID, map[string]any{"scope": "openid storage.read:/"}),
		"of a client":     real.Claims(oidctest.DeviceID, map[string]any{"client_id": oidctest.DeviceID}),
		"of type Bearer":  real.Claims(oidctest.DeviceID, map[string]any{"typ": "Bearer"}),
		"good, of type":   real.Claims(oidctest.DeviceID, map[string]any{"typ": "ID", "wlcg.ver": "1.0"}),
		"for access":      real.Claims(oidctest.DeviceID, map[string]any{"token_use": "access"}),
	} {
		if _, err := i.Identity(t.Context(), real.Sign(claims)); strings.HasPrefix(name, "good") != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	access, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: real.Key()},
		(&jose.SignerOptions{}).WithType("at+JWT"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(access).Claims(real.Claims(oidctest.DeviceID, nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Identity(t.Context(), text); codeOf(err) != farm.CodeNotKnown {
		t.Errorf("an access token: %v", err)
	}
	_, none, _ := lab(t, func(c *Config) { c.DeviceClientID = "" })
	if _, err := none.Identity(t.Context(), "x"); codeOf(err) != farm.CodeNotKnown {
		t.Errorf("of an issuer without command lines: %v", err)
	}
}

// TestDevice signs a command line in: it waits until somebody says yes, and the server takes its token.
func TestDevice(t *testing.T) {
	real, i, _ := lab(t, nil)
	shown := 0
	token, err := Device(t.Context(), "org", real.URL, oidctest.DeviceID, i.AllScopes(), real.Roots,
		func(where, code, _ string) {
			shown++
			if where != real.URL+"/activate" || code != "WDJB-MJHT" {
				t.Errorf("shown: %s %s", where, code)
			}
			real.Lock()
			real.Approved = map[string]any{"groups": "it"}
			real.Unlock()
		})
	if err != nil || shown != 1 {
		t.Fatalf("shown %d times, %v", shown, err)
	}
	if claims, err := i.Identity(t.Context(), token); err != nil || claims.All["groups"] != "it" {
		t.Errorf("%+v, %v", claims, err)
	}
	real.Describe = func(doc map[string]any) { delete(doc, "device_authorization_endpoint") }
	_, err = Device(t.Context(), "org", real.URL, oidctest.DeviceID, nil, real.Roots, nil)
	if codeOf(err) != CodeIssuerDown {
		t.Errorf("an issuer without devices: %v", err)
	}
}
