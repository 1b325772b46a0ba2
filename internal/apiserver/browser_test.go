package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/store"
)

// probe is a page that says who calls.
func probe(w http.ResponseWriter, r *http.Request) {
	who, err := Caller(r)
	body, readErr := io.ReadAll(r.Body)
	if readErr != nil {
		err = readErr
	}
	code := farm.Code("")
	if own, ok := err.(*farm.Error); ok {
		code = own.Code
	}
	fmt.Fprintf(w, "%s|%s|%s", who.User, code, body)
}

// TestBrowsers: a session counts for pages and for the API; what changes something must come from a page of ours.
func TestBrowsers(t *testing.T) {
	pages := []Page{{Pattern: "GET /probe", Handler: http.HandlerFunc(probe)},
		{Pattern: "POST /probe", Handler: http.HandlerFunc(probe)},
		{Pattern: "GET /open", Handler: http.HandlerFunc(probe), Open: true}}
	l := newLab(t)
	a := New(Options{Server: l.server, Authn: l.api.authn, Log: l.api.log, Version: "test", Pages: pages})
	who := farm.Identity{User: "ann", Means: "certificate"}
	_, token, err := l.server.Accounts.CreateToken(t.Context(), who, accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	_, session, err := l.server.Accounts.SignIn(t.Context(), token, accounts.Browser{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, method, path, cookie string
		headers                    []string
		want                       string // of the page, or the status
	}{
		{"signed in", "GET", "/probe", session, nil, "ann||"},
		{"nobody", "GET", "/probe", "", nil, "|not-known|"},
		{"ended", "GET", "/probe", session + "0", nil, "|not-known|"},
		{"open to all", "GET", "/open", "", nil, "||"},
		{"open to an ended session", "GET", "/open", session + "0", nil, "||"},
		{"a link from another site", "GET", "/probe", session, []string{"Sec-Fetch-Site", "cross-site"}, "ann||"},
		{"a form of ours", "POST", "/probe", session, []string{"Sec-Fetch-Site", "same-origin"}, "ann||a=b"},
		{"a form of ours, by Origin", "POST", "/probe", session, []string{"Origin", "https://example.com"}, "ann||a=b"},
		{"a form of another site", "POST", "/probe", session, []string{"Sec-Fetch-Site", "cross-site"}, "|not-yours|"},
		{"a form of a neighbour", "POST", "/probe", session, []string{"Sec-Fetch-Site", "same-site"}, "|not-yours|"},
		{"a form of another origin", "POST", "/probe", session, []string{"Origin", "https://evil.example"},
			"|not-yours|"},
		{"a form of nobody knows where", "POST", "/probe", session, nil, "|not-yours|"},
		{"a program with a token", "POST", "/probe", "", []string{"Authorization", "Bearer " + token}, "ann||a=b"},
		{"too long a form", "POST", "/probe", session, []string{"Sec-Fetch-Site", "same-origin", "X-Long", "1"},
			"|too-large|"},
		{"the API", "GET", "/v1/auth/whoami", session, nil, "200"},
		{"the API, by an ended session", "GET", "/v1/auth/whoami", session + "0", nil, "401"},
		{"the API, changed from nowhere", "DELETE", "/v1/tokens/0", session, nil, "403"},
		{"the API, changed by a page of ours", "DELETE", "/v1/tokens/0", session,
			[]string{"Sec-Fetch-Site", "same-origin"}, "404"},
		{"a console, from a neighbour", "GET", "/v1/vms/atlas%2Fa/stream", session,
			[]string{"Upgrade", "x", "Connection", "Upgrade", "Sec-Fetch-Site", "same-site"}, "403"},
		{"a console, from nowhere", "GET", "/v1/vms/atlas%2Fa/stream", session,
			[]string{"Upgrade", "x", "Connection", "Upgrade"}, "403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body io.Reader
			if c.method == "POST" {
				body = strings.NewReader("a=b")
			}
			r := httptest.NewRequest(c.method, c.path, body)
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			if r.Header.Get("X-Long") != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", maxBody+1))), -1
			}
			if c.cookie != "" {
				r.AddCookie(&http.Cookie{Name: "__Host-grange", Value: url.QueryEscape(c.cookie)})
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			got := w.Body.String()
			if strings.HasPrefix(c.path, "/v1") {
				got = fmt.Sprint(w.Code)
			}
			if got != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

// TestSessionCookie: no script reads it, no other host sets it, and it goes over TLS alone.
func TestSessionCookie(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(http.ResponseWriter)
		want string
	}{
		"set": {func(w http.ResponseWriter) { SetSession(w, "grs_a_b") },
			"__Host-grange=grs_a_b; Path=/; HttpOnly; Secure; SameSite=Lax"},
		"cleared": {ClearSession, "__Host-grange=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax"},
	} {
		w := httptest.NewRecorder()
		c.set(w)
		if got := w.Header().Get("Set-Cookie"); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestPagesInTurn: a user's pages are read one at a time, no one else waits for them, and a browser that takes its
// answer slowly keeps no turn.
func TestPagesInTurn(t *testing.T) {
	l := newLab(t)
	began, read, taken := make(chan string), make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := Caller(r)
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		began <- who.User
		<-read
		w.WriteHeader(http.StatusOK)
		<-taken
	})
	a := New(Options{Server: l.server, Authn: l.api.authn, Log: l.api.log, Version: "test",
		Pages: []Page{{Pattern: "GET /slow", Handler: slow}}})
	l.update(func(tx *store.Tx) error { return tx.PutUser(farm.User{Name: "bob"}) })
	var work sync.WaitGroup
	get := func(user string) {
		_, token, err := l.server.Accounts.CreateToken(t.Context(), farm.Identity{User: user, Means: "certificate"},
			accounts.TokenOrder{})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "https://example.com/slow", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			a.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	next := func() string {
		select {
		case user := <-began:
			return user
		case <-time.After(50 * time.Millisecond):
			return ""
		}
	}
	wait := func(user string) {
		t.Helper()
		if got := <-began; got != user {
			t.Fatalf("a page of %q began, not of %s", got, user)
		}
	}
	get("ann")
	wait("ann")
	get("ann")
	if user := next(); user != "" {
		t.Errorf("a second page of %s began beside the first", user)
	}
	get("bob")
	wait("bob")
	nobody := httptest.NewRecorder()
	a.ServeHTTP(nobody, httptest.NewRequestWithContext(t.Context(), "GET", "https://example.com/slow", nil))
	if nobody.Code != http.StatusUnauthorized {
		t.Errorf("whom nobody knows got %d", nobody.Code)
	}
	close(read)
	wait("ann") // though no browser has taken its answer
	close(taken)
	work.Wait()
}
