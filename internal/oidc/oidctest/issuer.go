// Package oidctest has an issuer for tests, on this machine: it signs people in at once, and fails or lies as a test
// wants.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// The client that the issuer knows.
const (
	ClientID = "grange-server"
	Secret   = "a secret of the client"
	DeviceID = "grange-cli"
)

// Issuer is an issuer. Its fields are set before it is asked, or under Lock.
type Issuer struct {
	sync.Mutex
	URL   string
	Roots *x509.CertPool

	Now      func() time.Time
	Describe func(doc map[string]any)                      // changes the description
	Answer   func(http.ResponseWriter, *http.Request) bool // true: it has answered in the issuer's place
	UserInfo map[string]any                                // beside the subject
	Approved map[string]any                                // claims of whoever signs in at a device; nil: not yet
	Asked    map[string]int                                // requests by path

	t     *testing.T
	keys  []jose.JSONWebKey
	codes map[string]pending
}

// pending is a sign-in whose code nobody has exchanged.
type pending struct {
	challenge, redirect string
	claims              map[string]any
}

// New starts an issuer.
func New(t *testing.T) *Issuer {
	i := &Issuer{t: t, Now: time.Now, Asked: map[string]int{}, codes: map[string]pending{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.description)
	mux.HandleFunc("GET /keys", i.keySet)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("POST /device", i.device)
	mux.HandleFunc("GET /userinfo", i.userinfo)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.Lock()
		i.Asked[r.URL.Path]++
		answer := i.Answer
		i.Unlock()
		if answer == nil || !answer(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	i.URL, i.Roots = s.URL, x509.NewCertPool()
	i.Roots.AddCert(s.Certificate())
	i.Rotate()
	return i
}

// Rotate signs with a new key from now on, and forgets the one before.
func (i *Issuer) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.Lock()
	defer i.Unlock()
	i.keys = []jose.JSONWebKey{{Key: key, KeyID: rand.Text(), Algorithm: string(jose.ES256), Use: "sig"}}
}

// Key is the one that the issuer signs with.
func (i *Issuer) Key() jose.JSONWebKey {
	i.Lock()
	defer i.Unlock()
	return i.keys[0]
}

// Claims are those of a token that holds for an audience for an hour, with more or others.
func (i *Issuer) Claims(audience string, more map[string]any) map[string]any {
	now := i.Now()
	all := map[string]any{"iss": i.URL, "sub": "17", "aud": audience, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, more)
	return all
}

// Sign makes a token of claims.
func (i *Issuer) Sign(claims map[string]any) string {
	return SignWith(i.t, i.Key(), jose.ES256, claims)
}

// SignWith makes a token of claims with some key.
func SignWith(t *testing.T, key any, algorithm jose.SignatureAlgorithm, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Authorize is the issuer's page on which somebody signs in: it returns what the browser brings back.
func (i *Issuer) Authorize(to string, claims map[string]any) url.Values {
	i.t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		i.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" ||
		q.Get("state") == "" || q.Get("client_id") != ClientID {
		i.t.Errorf("asked for %v", q)
	}
	all := i.Claims(ClientID, map[string]any{"nonce": q.Get("nonce")})
	maps.Copy(all, claims)
	code := rand.Text()
	i.Lock()
	defer i.Unlock()
	i.codes[code] = pending{q.Get("code_challenge"), q.Get("redirect_uri"), all}
	return url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}
}

func (i *Issuer) description(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize",
		"token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "userinfo_endpoint": i.URL + "/userinfo",
		"device_authorization_endpoint":         i.URL + "/device",
		"id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256"}}
	if i.Describe != nil {
		i.Describe(doc)
	}
	i.write(w, http.StatusOK, doc)
}

func (i *Issuer) keySet(w http.ResponseWriter, _ *http.Request) {
	i.Lock()
	defer i.Unlock()
	set := jose.JSONWebKeySet{}
	for _, k := range i.keys {
		set.Keys = append(set.Keys, k.Public())
	}
	i.write(w, http.StatusOK, set)
}

// token exchanges a code once, by whoever has its verifier and the client's secret; and what a device has.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("grant_type") == "urn:ietf:params:oauth:grant-type:device_code" {
		i.Lock()
		claims := i.Approved
		i.Unlock()
		if claims == nil {
			i.write(w, http.StatusBadRequest, map[string]string{"error": "authorization_pending"})
			return
		}
		i.grant(w, i.Claims(DeviceID, claims))
		return
	}
	i.Lock()
	p, ok := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	i.Unlock()
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	} else {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	}
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || id != ClientID || secret != Secret || r.PostFormValue("redirect_uri") != p.redirect ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge {
		i.write(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	i.grant(w, p.claims)
}

func (i *Issuer) grant(w http.ResponseWriter, claims map[string]any) {
	i.write(w, http.StatusOK, map[string]any{"access_token": "opaque", "token_type": "Bearer", "expires_in": 3600,
		"id_token": i.Sign(claims)})
}

func (i *Issuer) device(w http.ResponseWriter, _ *http.Request) {
	i.write(w, http.StatusOK, map[string]any{"device_code": rand.Text(), "user_code": "WDJB-MJHT", "interval": 1,
		"verification_uri": i.URL + "/activate", "expires_in": 600})
}

func (i *Issuer) userinfo(w http.ResponseWriter, _ *http.Request) {
	i.Lock()
	defer i.Unlock()
	all := map[string]any{"sub": "17"}
	maps.Copy(all, i.UserInfo)
	i.write(w, http.StatusOK, all)
}

func (i *Issuer) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // whoever asked has gone
	}
}
