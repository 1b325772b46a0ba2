package signin

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/oidc/oidctest"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/store"
)

const serverURL = "https://grange.example:7480"

// lab is a server with an issuer, a user ann whom the issuer knows as 17, and mappings.
type lab struct {
	t      *testing.T
	store  *store.Store
	server *server.Server
	issuer *oidctest.Issuer
	api    *apiserver.API
}

func newLab(t *testing.T, change func(*oidc.Config)) *lab {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	l := &lab{t: t, store: db, issuer: oidctest.New(t)}
	log := slog.New(slog.DiscardHandler)
	l.server = server.New(server.Options{Store: db, Log: log, URL: serverURL, Version: "test",
		CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), ImageDir: filepath.Join(t.TempDir(), "images"),
		ImageSpace: 32 * farm.MiB})
	c := oidc.Config{Name: "org", Title: "The Organization", URL: l.issuer.URL, ClientID: oidctest.ClientID,
		Secret: oidctest.Secret, DeviceClientID: oidctest.DeviceID, Audiences: []string{"grange"},
		Roots: l.issuer.Roots}
	if change != nil {
		change(&c)
	}
	evil := oidc.Config{Name: "evil", URL: "https://evil.example", ClientID: "x"} // never asked
	issuers := oidc.NewIssuers(oidc.NewIssuer(c, oidc.Options{Log: log}), oidc.NewIssuer(evil, oidc.Options{Log: log}))
	known := authn.New(authn.Options{Directory: l.server.Directory(), Issuers: issuers})
	l.api = apiserver.New(apiserver.Options{Server: l.server, Authn: known, Issuers: issuers, Log: log, Version: "test",
		Pages: Pages(Options{Accounts: l.server.Accounts, Authn: known, Issuers: issuers, URL: serverURL, Log: log})})
	l.update(func(tx *store.Tx) error {
		return errors.Join(tx.PutProject(farm.Project{Name: "atlas"}),
			tx.PutUser(farm.User{Name: "ann", Logins: []string{"org:17"}}),
			tx.PutMapping(farm.Mapping{Issuer: "org", Claim: "groups", Value: "atlas", Role: farm.RoleMember,
				Project: "atlas"}),
			tx.PutMapping(farm.Mapping{Issuer: "org", Claim: "scope", Value: "compute.read", Role: farm.RoleReader}))
	})
	return l
}

func (l *lab) update(do func(*store.Tx) error) {
	l.t.Helper()
	if _, err := l.store.Update(l.t.Context(), do); err != nil {
		l.t.Fatal(err)
	}
}

// browser keeps cookies, and nothing else.
type browser struct {
	lab *lab
	jar map[string]string
}

func (l *lab) browser() *browser { return &browser{l, map[string]string{}} }

func (b *browser) send(method, path string, form url.Values) *httptest.ResponseRecorder {
	b.lab.t.Helper()
	r := httptest.NewRequest(method, serverURL+path, strings.NewReader(form.Encode()))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return b.do(r)
}

func (b *browser) do(r *http.Request) *httptest.ResponseRecorder {
	for name, value := range b.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.lab.api.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.jar[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
	return w
}

// goAndReturn goes to the issuer, where somebody signs in, and returns what the browser brings back.
func (b *browser) goAndReturn(next string, claims map[string]any) url.Values {
	b.lab.t.Helper()
	w := b.send("GET", "/auth/start/org?next="+url.QueryEscape(next), nil)
	if w.Code != http.StatusSeeOther {
		b.lab.t.Fatalf("start: %d %s", w.Code, w.Body)
	}
	return b.lab.issuer.Authorize(w.Header().Get("Location"), claims)
}

func (b *browser) callback(q url.Values) *httptest.ResponseRecorder {
	return b.send("GET", "/auth/callback/org?"+q.Encode(), nil)
}

func (b *browser) whoami() string {
	w := b.send("GET", "/v1/auth/whoami", nil)
	return fmt.Sprint(w.Code, " ", w.Body)
}

// TestSignIn from the page to the sign-out, with what the claims give.
func TestSignIn(t *testing.T) {
	l := newLab(t, nil)
	b := l.browser()
	w := b.send("GET", "/auth/login?next=/vms", nil)
	page, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if w.Code != 200 || !strings.Contains(page, `href="/auth/start/org?next=%2Fvms"`) ||
		!strings.Contains(page, "The Organization") || !strings.Contains(page, `name="next" value="/vms"`) ||
		strings.Contains(page, "<script") || !strings.Contains(policy, "default-src 'none'") {
		t.Fatalf("%d %s %s", w.Code, policy, page)
	}
	planted := "grs_0123456789abcdef_" + strings.Repeat("0", 64)
	b.jar["__Host-grange"] = planted
	back := b.goAndReturn("/vms?a=b", map[string]any{"groups": []string{"atlas", "other"}})
	w = b.callback(back)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/vms?a=b" {
		t.Fatalf("%d %s %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	session := b.jar["__Host-grange"]
	if session == planted || session == "" || b.jar[tripCookie] != "" {
		t.Errorf("cookies %v", b.jar)
	}
	if who := b.whoami(); !strings.Contains(who, `"user":"ann"`) || !strings.Contains(who, `"role":"member"`) {
		t.Error(who)
	}
	if w := b.callback(back); w.Code != http.StatusUnauthorized {
		t.Errorf("the way back once more: %d %s", w.Code, w.Body)
	}
	l.issuer.Lock() // from now on it is down: whoever has signed in goes on
	l.issuer.Answer = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	l.issuer.Unlock()
	if who := b.whoami(); !strings.HasPrefix(who, "200") {
		t.Error(who)
	}
	w = b.send("POST", "/auth/logout", url.Values{})
	if w.Code != http.StatusSeeOther || b.jar["__Host-grange"] != "" {
		t.Errorf("signed out: %d %v", w.Code, b.jar)
	}
	b.jar["__Host-grange"] = session
	if who := b.whoami(); !strings.HasPrefix(who, "401") {
		t.Errorf("by the session that ended: %s", who)
	}
}

// TestWaysBack that are refused: of another sign-in, of another browser, without what it began with.
func TestWaysBack(t *testing.T) {
	l := newLab(t, nil)
	for name, change := range map[string]func(*browser, url.Values){
		"another state":      func(_ *browser, q url.Values) { q.Set("state", "x") },
		"no state":           func(_ *browser, q url.Values) { q.Del("state") },
		"another issuer":     func(_ *browser, q url.Values) { q.Set("iss", "https://evil.example") },
		"no code":            func(_ *browser, q url.Values) { q.Del("code") },
		"another code":       func(_ *browser, q url.Values) { q.Set("code", "x") },
		"an error":           func(_ *browser, q url.Values) { q.Set("error", "access_denied") },
		"another browser":    func(b *browser, _ url.Values) { clear(b.jar) },
		"a cookie of others": func(b *browser, _ url.Values) { b.jar[tripCookie] = "e30" },
		"no cookie at all":   func(b *browser, _ url.Values) { b.jar[tripCookie] = "%%" },
		"another browser's code": func(b *browser, q url.Values) {
			q.Set("code", l.browser().goAndReturn("/", nil).Get("code"))
		},
	} {
		b := l.browser()
		back := b.goAndReturn("/", map[string]any{"groups": "<b>atlas</b>"})
		change(b, back)
		if w := b.callback(back); w.Code != http.StatusUnauthorized && w.Code != http.StatusTooManyRequests ||
			b.jar["__Host-grange"] != "" || !strings.Contains(w.Body.String(), `class="hint"`) {
			t.Errorf("%s: %d %v %s", name, w.Code, b.jar, w.Body)
		}
	}
}

// TestMixUp: an issuer that sends a browser to another one, with all that it needs there, is not given what that one
// says of the browser's user, and the browser is not signed in at it.
func TestMixUp(t *testing.T) {
	l := newLab(t, nil)
	b := l.browser()
	back := b.goAndReturn("/", nil)
	back.Del("iss")
	if w := b.send("GET", "/auth/callback/evil?"+back.Encode(), nil); w.Code != http.StatusUnauthorized ||
		!strings.Contains(w.Body.String(), "another issuer") || b.jar["__Host-grange"] != "" {
		t.Errorf("by the other's way back: %d %s", w.Code, w.Body)
	}
	if n := l.issuer.Asked["/token"]; n != 0 {
		t.Errorf("%d codes were exchanged", n)
	}
}

// TestTooManyAnswers: nobody has the server ask an issuer without end.
func TestTooManyAnswers(t *testing.T) {
	l := newLab(t, nil)
	b := l.browser()
	b.goAndReturn("/", nil)
	cookie := b.jar[tripCookie]
	bag, err := tripOf(&http.Request{Header: http.Header{"Cookie": {tripCookie + "=" + cookie}}})
	if err != nil {
		t.Fatal(err)
	}
	q := url.Values{"state": {bag.Trip.State}, "code": {"x"}}
	for range 4 * maxAsked {
		b.jar[tripCookie] = cookie
		b.callback(q)
	}
	const each = 2 // a code that is refused is tried with the secret in both of its places
	if n := l.issuer.Asked["/token"]; n < maxAsked || n > each*(maxAsked+30) {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// TestLoginTakenAway: a session by a login ends when the login is another user's, or nobody's.
func TestLoginTakenAway(t *testing.T) {
	l := newLab(t, nil)
	b := l.browser()
	b.callback(b.goAndReturn("/", nil))
	if who := b.whoami(); !strings.HasPrefix(who, "200") {
		t.Fatal(who)
	}
	l.update(func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "ann"}) })
	if who := b.whoami(); !strings.HasPrefix(who, "401") {
		t.Errorf("without the login: %s", who)
	}
	l.update(func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "eve", Logins: []string{"org:17"}}) })
	if who := b.whoami(); !strings.HasPrefix(who, "401") {
		t.Errorf("with the login another's: %s", who)
	}
}

// TestByToken signs in by a token of grange, and not by a form of another site.
func TestByToken(t *testing.T) {
	l := newLab(t, nil)
	_, token, err := l.server.Accounts.CreateToken(t.Context(), farm.Identity{User: "ann", Means: "certificate"},
		accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	b := l.browser()
	form := url.Values{"token": {" " + token + "\n"}, "next": {"//evil.example/"}}
	if w := b.send("POST", "/auth/login", form); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Errorf("%d %s %s", w.Code, w.Header(), w.Body)
	}
	if who := b.whoami(); !strings.Contains(who, `"user":"ann"`) {
		t.Error(who)
	}
	evil := l.browser()
	r := httptest.NewRequest("POST", serverURL+"/auth/login", strings.NewReader(form.Encode()))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if w := evil.do(r); w.Code != http.StatusForbidden || len(evil.jar) > 0 {
		t.Errorf("a form of another site: %d %v", w.Code, evil.jar)
	}
	if w := evil.send("POST", "/auth/login", url.Values{"token": {"grt_<script>"}}); w.Code != 401 ||
		len(evil.jar) > 0 || strings.Contains(w.Body.String(), "<script") {
		t.Errorf("a wrong token: %d %v %s", w.Code, evil.jar, w.Body)
	}
}

// TestUsers: whom an issuer knows is the user with that login, and no other one, whatever the claims call them.
func TestUsers(t *testing.T) {
	for _, create := range []bool{false, true} {
		l := newLab(t, func(c *oidc.Config) { c.CreateUsers, c.NameClaim = create, "name" })
		l.update(func(tx *store.Tx) error {
			return errors.Join(tx.PutUser(farm.User{Name: "gone", Logins: []string{"org:18"}, Disabled: true}),
				tx.PutUser(farm.User{Name: "Bob", Logins: []string{"org:ABC"}}))
		})
		for _, c := range []struct {
			what, subject, name string
			user                string // of whoever is signed in
			says                string
		}{
			{"its login", "17", "zoe", "ann", ""},
			{"disabled", "18", "zoe", "", "disabled"},
			{"a name of another", "99", "ann", "", "there is a user of this name already"},
			{"a name that differs in case", "98", "bob", "", "differs in case alone"},
			{"root's name", "97", "root", "", "is called so in its log"},
			{"nearly root's name", "93", "Root", "", "is called so in its log"},
			{"no name", "96", "", "", "is empty"},
			{"a name that is none", "95", "../x", "", "in it"},
			{"a new one", "94", "zoe", "zoe", ""},
			{"the new one again", "94", "other", "zoe", ""},
		} {
			b := l.browser()
			w := b.callback(b.goAndReturn("/", map[string]any{"sub": c.subject, "name": c.name}))
			user, says := c.user, c.says
			if !create && c.subject != "17" && c.subject != "18" {
				user, says = "", "no user of this server has this login"
			}
			switch {
			case user != "" && !strings.Contains(b.whoami(), `"user":"`+user+`"`):
				t.Errorf("%s: %d %s %s", c.what, w.Code, w.Body, b.whoami())
			case user == "" && (b.jar["__Host-grange"] != "" || !strings.Contains(w.Body.String(), says)):
				t.Errorf("%s: %d %v %s", c.what, w.Code, b.jar, w.Body)
			}
		}
		if create {
			continue
		}
		b := l.browser()
		w := b.callback(b.goAndReturn("/", map[string]any{"sub": "abc"}))
		if !strings.Contains(w.Body.String(), "differs in case alone") {
			t.Errorf("a login in another case: %s", w.Body)
		}
	}
}

// TestPrograms: a token of the issuer has what mappings give to it, and nothing of its user's own.
func TestPrograms(t *testing.T) {
	l := newLab(t, nil)
	l.update(func(tx *store.Tx) error { return tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleAdmin}) })
	ask := func(method, path string, claims map[string]any) string {
		r := httptest.NewRequest(method, serverURL+path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+l.issuer.Sign(l.issuer.Claims("grange", claims)))
		w := httptest.NewRecorder()
		l.api.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	scope := map[string]any{"scope": "openid compute.read", "wlcg.ver": "1.0"}
	if got := ask("GET", "/v1/auth/whoami", scope); !strings.Contains(got, `"user":"ann"`) ||
		!strings.Contains(got, `"role":"reader"`) || strings.Contains(got, `"role":"admin"`) {
		t.Error(got)
	}
	if got := ask("POST", "/v1/tokens", scope); !strings.HasPrefix(got, "403") {
		t.Errorf("makes a token with all rights: %s", got)
	}
	got := ask("GET", "/v1/auth/whoami", map[string]any{"sub": "nobody"})
	if !strings.Contains(got, "grange:no-login") {
		t.Errorf("of nobody: %s", got)
	}
	for range 30 {
		ask("GET", "/v1/auth/whoami", map[string]any{"aud": "other"})
	}
	if got := ask("GET", "/v1/auth/whoami", scope); !strings.HasPrefix(got, "200") {
		t.Errorf("beside many wrong ones: %s", got)
	}
}

// TestLocalPath sends nobody away from this server.
func TestLocalPath(t *testing.T) {
	for next, want := range map[string]string{"/vms?a=b#c": "/vms?a=b#c", "": "/", "vms": "/", "//evil": "/",
		"/\\evil": "/", "https://evil/": "/", "/\t/evil": "/", "javascript:x": "/", "/auth/logout": "/",
		"/%2f/evil": "/%2f/evil", "http:evil": "/", "/vms/a:b": "/vms/a:b"} {
		if got := localPath(next); got != want {
			t.Errorf("%q goes to %q, not %q", next, got, want)
		}
	}
}

// TestElsewhere: a browser that came by another name begins where its cookies will be.
func TestElsewhere(t *testing.T) {
	l := newLab(t, nil)
	r := httptest.NewRequest("GET", "https://127.0.0.1:7480/auth/start/org?next=/vms", nil)
	w := httptest.NewRecorder()
	l.api.ServeHTTP(w, r)
	if to := w.Header().Get("Location"); to != serverURL+"/auth/start/org?next=%2Fvms&sent=1" {
		t.Errorf("sent to %s", to)
	}
	r = httptest.NewRequest("GET", "https://127.0.0.1:7480/auth/start/org?next=%2Fvms&sent=1", nil)
	w = httptest.NewRecorder()
	if l.api.ServeHTTP(w, r); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "sets url") {
		t.Errorf("by a proxy that names the server otherwise: %d %s", w.Code, w.Body)
	}
	for host, same := range map[string]bool{"grange.example": true, "GRANGE.example:443": true,
		"grange.example:444": false} {
		if (plainHost(host) == plainHost("grange.example:443")) != same {
			t.Errorf("%s", host)
		}
	}
}

// TestCommandLines exchange an identity token for a session, once, and end it.
func TestCommandLines(t *testing.T) {
	l := newLab(t, nil)
	post := func(path, bearer, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", serverURL+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+bearer)
		w := httptest.NewRecorder()
		l.api.ServeHTTP(w, r)
		return w
	}
	claims := l.issuer.Claims(oidctest.DeviceID, map[string]any{"groups": "atlas"})
	token := l.issuer.Sign(claims)
	body := fmt.Sprintf(`{"issuer":"org","token":%q}`, token)
	w := post("/v1/auth/login", "", body)
	var answer fleet.LoginAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Session.User != "ann" ||
		len(answer.Session.Grants) != 1 {
		t.Fatalf("%v: %d %s", err, w.Code, w.Body)
	}
	if w := post("/v1/auth/login", "", body); w.Code != http.StatusUnauthorized {
		t.Errorf("the token once more: %d %s", w.Code, w.Body)
	}
	again := l.issuer.Sign(claims) // the same, in another text
	if again == token {
		t.Fatal("a signature is always the same")
	}
	if w := post("/v1/auth/login", "", fmt.Sprintf(`{"issuer":"org","token":%q}`, again)); w.Code != 401 {
		t.Errorf("the same token in another text: %d %s", w.Code, w.Body)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusUnauthorized} {
		if w := post("/v1/auth/logout", answer.Secret, ""); w.Code != want {
			t.Errorf("signed out: %d %s, not %d", w.Code, w.Body, want)
		}
	}
}

// TestExplainClaims says what claims would give, and changes nothing.
func TestExplainClaims(t *testing.T) {
	l := newLab(t, func(c *oidc.Config) { c.CreateUsers, c.NameClaim = true, "name" })
	who := farm.Identity{User: "root", Root: true}
	for name, c := range map[string]struct {
		claims  map[string]any
		user    string
		isNew   bool
		rules   int
		refusal farm.Code
	}{
		"a user":    {map[string]any{"sub": "17", "groups": []any{"atlas"}}, "ann", false, 1, ""},
		"a new one": {map[string]any{"sub": "18", "name": "zoe"}, "zoe", true, 0, ""},
		"another one": {map[string]any{"sub": "18", "name": "ANN", "groups": "ATLAS"}, "", false, 0,
			accounts.CodeUserTaken},
	} {
		got, err := l.server.Accounts.ExplainClaims(t.Context(), who,
			farm.Claims{Issuer: "org", Subject: c.claims["sub"].(string), All: c.claims, NameClaim: "name",
				Create: true})
		if err != nil || got.User != c.user || got.New != c.isNew || len(got.Mapped.Rules) != c.rules ||
			(c.refusal != "") != farm.IsCode(got.Refused, c.refusal) || len(got.Mapped.Ignored) == 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	users, err := l.server.Accounts.Users(t.Context(), who)
	if err != nil || len(users) != 1 {
		t.Errorf("%d users, %v", len(users), err)
	}
	if _, err := l.server.Accounts.ExplainClaims(t.Context(), farm.Identity{User: "ann", Means: "token"},
		farm.Claims{Issuer: "org", Subject: "17"}); !farm.IsCode(err, farm.CodeNoRole) {
		t.Errorf("by somebody without a role: %v", err)
	}
}
