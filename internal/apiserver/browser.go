package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
)

// sessionCookie holds the text of a browser's session. By the prefix a browser takes it from this server alone, by TLS,
// for all paths.
const sessionCookie = "__Host-grange"

// SetSession gives a browser its session, in place of any other.
func SetSession(w http.ResponseWriter, text string) { http.SetCookie(w, cookie(text, 0)) }

// ClearSession has a browser forget its session.
func ClearSession(w http.ResponseWriter) { http.SetCookie(w, cookie("", -1)) }

// Lax, and not strict: who follows a link from a mail or a ticket is signed in there.
func cookie(text string, age int) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: text, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
}

// Page is a route that answers browsers. Its handler says itself, as a page, what is wrong with a request.
type Page struct {
	Pattern string // of http.ServeMux, with its method
	Handler http.Handler
	// Open pages are for callers whom nobody knows, too. Nobody looks who calls.
	Open bool
}

// refusalKey is where edge puts why the caller of a page is refused.
type refusalKey struct{}

// Caller is who calls with a request for a page, or why nobody does: a *farm.Error of farm.CodeNotKnown where a sign-in
// would help. With an error there is no body, and the identity may do nothing.
func Caller(r *http.Request) (farm.Identity, error) {
	err, _ := r.Context().Value(refusalKey{}).(error)
	return callerOf(r.Context()), err
}

// Shown is what the caller of a page shows of itself, for pages on which nobody has looked at it.
func Shown(r *http.Request) authn.Shown { return shownOf(r.Context()) }

// pages registers pages.
func (a *API) pages(all []Page) {
	for _, p := range all {
		if p.Open {
			a.mux.Handle(p.Pattern, p.Handler)
			a.whose[p.Pattern] = forAnyBrowser
			continue
		}
		a.mux.Handle(p.Pattern, a.inTurn(p.Handler))
		a.whose[p.Pattern] = forBrowsers
	}
}

// inTurn returns a page for which users wait in turn, as for routes that read more of the store than their answer has.
// A page reads several lists. The turn ends with the first byte of the answer, so that a slow browser keeps no place.
func (a *API) inTurn(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := Caller(r)
		if err != nil { // the page says so, and reads nothing
			page.ServeHTTP(w, r)
			return
		}
		leave, err := a.shares.walk(r.Context(), who)
		if err != nil { // the browser has gone
			return
		}
		defer leave()
		page.ServeHTTP(&turnWriter{w, leave}, r)
	})
}

// turnWriter gives a turn back when the answer begins.
type turnWriter struct {
	http.ResponseWriter
	leave func()
}

func (w *turnWriter) WriteHeader(status int) {
	w.leave()
	w.ResponseWriter.WriteHeader(status)
}

func (w *turnWriter) Write(p []byte) (int, error) {
	w.leave()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *turnWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refusedPage is the request of a page whose caller is refused.
func refusedPage(r *http.Request, err error) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), refusalKey{}, err))
	r.Body, r.ContentLength = http.NoBody, 0
	return r
}

// sameOrigin refuses what a page of another site has a browser do: to call in the name of who is signed in, or of whose
// certificate the browser shows. Browsers say where a call comes from. A program may leave that out, unless it shows a
// cookie: then a browser of old times would pass for one.
func (a *API) sameOrigin(r *http.Request, s authn.Shown) error {
	changes := *r
	if r.Header.Get("Upgrade") != "" { // a console: GET, and yet it lets somebody in
		changes.Method = http.MethodPost
	}
	err := a.origin.Check(&changes)
	silent := r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""
	switch {
	case err != nil:
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
			Message: "a page of another site may not call here", Err: err,
			Hint: "call from the same site, or from a program"}
	case s.Session != "" && s.Token == "" && silent && !safe(changes.Method):
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
			Message: "the request shows a session, and not which page it comes from",
			Hint:    "use a browser that sends Origin; a program shows a token, `Authorization: Bearer …`"}
	}
	return nil
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// LocalPath is a path of this server that a form or a link names, or the usual one: nobody is sent elsewhere.
func LocalPath(path, usual string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(path, "/") ||
		strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\t\r\n") {
		return usual
	}
	return path
}
