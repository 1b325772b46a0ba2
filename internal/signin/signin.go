// Package signin signs people in and out in a browser: by an issuer of their organization, or by a token of grange. Its
// pages are plain HTML and need no scripts.
package signin

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/throttle"
)

// Options is what the pages are made of.
type Options struct {
	Accounts *accounts.Accounts
	Authn    *authn.Authenticator // counts failures
	Issuers  *oidc.Issuers
	URL      string // of this server: issuers send browsers back there
	Log      *slog.Logger
}

// CodeOtherName is an error code; see docs/errors.md.
const CodeOtherName farm.Code = "other-server-name"

// signin answers browsers.
type signin struct {
	Options
	asked throttle.Buckets // answers of issuers, by who brought them
}

// Answers of issuers that one address brings at once, and the time after which it may bring one more. A site's gateway
// has many people behind it.
const (
	maxAsked  = 60
	askedBack = time.Second
)

// Paths of the pages. Other pages link to the first, and have a form for the last.
const (
	LoginPath    = "/auth/login"
	startPath    = "/auth/start/"
	callbackPath = "/auth/callback/"
	LogoutPath   = "/auth/logout"
)

// Pages are the pages, for apiserver.Options.
func Pages(o Options) []apiserver.Page {
	s := &signin{o, throttle.Buckets{Size: maxAsked, Leak: askedBack, Now: time.Now}}
	open := func(pattern string, do http.HandlerFunc) apiserver.Page {
		return apiserver.Page{Pattern: pattern, Handler: do, Open: true}
	}
	return []apiserver.Page{
		open("GET "+LoginPath, s.login), open("POST "+LoginPath, s.byToken),
		open("GET "+startPath+"{issuer}", s.start), open("GET "+callbackPath+"{issuer}", s.callback),
		open("POST "+LogoutPath, s.logout),
	}
}

// login shows by what one may sign in.
func (s *signin) login(w http.ResponseWriter, r *http.Request) {
	s.show(w, http.StatusOK, view{Next: localPath(r.URL.Query().Get("next"))})
}

// byToken signs in by a token of grange, in a form.
func (s *signin) byToken(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, r) {
		return
	}
	next := localPath(r.PostFormValue("next"))
	token := strings.TrimSpace(r.PostFormValue("token"))
	_, text, err := s.Accounts.SignIn(r.Context(), token, browserOf(r))
	s.finish(w, r, text, next, err)
}

// start sends a browser to an issuer.
func (s *signin) start(w http.ResponseWriter, r *http.Request) {
	if s.elsewhere(w, r) {
		return
	}
	next := localPath(r.URL.Query().Get("next"))
	issuer, err := s.Issuers.Named(r.PathValue("issuer"))
	if err != nil {
		s.fail(w, r, next, err)
		return
	}
	to, trip, err := issuer.Begin(r.Context(), s.redirect(issuer))
	if err != nil {
		s.fail(w, r, next, err)
		return
	}
	setTrip(w, luggage{Trip: trip, Next: next})
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// redirect is where an issuer sends browsers back to: each has its own, so that no answer passes for another's.
func (s *signin) redirect(i *oidc.Issuer) string { return s.URL + callbackPath + i.Name }

// sent is set by who was sent here by elsewhere.
const sent = "sent"

// elsewhere sends a browser that knows this server by another name to the one that issuers send it back to: its cookies
// are of one name alone. It does so once: a proxy in between may name the server as it likes.
func (s *signin) elsewhere(w http.ResponseWriter, r *http.Request) bool {
	u, err := url.Parse(s.URL)
	if err != nil || plainHost(u.Host) == plainHost(r.Host) {
		return false
	}
	q := r.URL.Query()
	if q.Has(sent) {
		s.fail(w, r, q.Get("next"), &farm.Error{Kind: farm.Conflict, Code: CodeOtherName,
			Message: fmt.Sprintf("this server is reached as %.100s, and its url is %s", farm.Printable(r.Host), s.URL),
			Hint:    "an administrator sets url in server.toml to what browsers have, and has a proxy pass Host as it is"})
		return true
	}
	q.Set(sent, "1")
	http.Redirect(w, r, s.URL+r.URL.EscapedPath()+"?"+q.Encode(), http.StatusSeeOther)
	return true
}

// plainHost is a host as browsers send it: without the usual port.
func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

// callback is where an issuer sends a browser back to.
func (s *signin) callback(w http.ResponseWriter, r *http.Request) {
	bag, err := tripOf(r)
	clearTrip(w) // it is good for one return
	if err != nil {
		s.fail(w, r, "/", err)
		return
	}
	issuer, err := s.Issuers.Named(r.PathValue("issuer"))
	if err == nil {
		err = bag.check(r.URL.Query(), issuer.Name)
	}
	if err == nil {
		err = s.mayAsk(r)
	}
	if err != nil {
		s.fail(w, r, bag.Next, err)
		return
	}
	claims, err := issuer.End(r.Context(), bag.Trip, r.URL.Query(), s.redirect(issuer))
	if err != nil {
		s.fail(w, r, bag.Next, err)
		return
	}
	_, text, err := s.Accounts.SignInClaims(r.Context(), claims, browserOf(r))
	s.finish(w, r, text, bag.Next, err)
}

// mayAsk refuses an address that has the server ask issuers too often: anybody can make up an answer.
func (s *signin) mayAsk(r *http.Request) error {
	from := apiserver.Shown(r).Address
	if room, _ := s.asked.Add(throttle.Party(from)); room || !from.IsValid() {
		return nil
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeTooManyTries,
		Message: fmt.Sprintf("too many sign-ins from %v", from), Hint: "begin again in a minute"}
}

// finish gives a browser its session.
func (s *signin) finish(w http.ResponseWriter, r *http.Request, session, next string, err error) {
	if err != nil {
		s.fail(w, r, next, err)
		return
	}
	apiserver.SetSession(w, session)
	http.Redirect(w, r, localPath(next), http.StatusSeeOther)
}

// logout ends the session. The one at the issuer goes on.
func (s *signin) logout(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, r) {
		return
	}
	if err := s.Accounts.SignOut(r.Context(), apiserver.Shown(r).Session); err != nil {
		s.fail(w, r, "/", err)
		return
	}
	apiserver.ClearSession(w)
	http.Redirect(w, r, LoginPath, http.StatusSeeOther)
}

// refused shows why edge refuses a request, if it does: a page of another site sent it, or it is too long.
func (s *signin) refused(w http.ResponseWriter, r *http.Request) bool {
	_, err := apiserver.Caller(r)
	if err != nil {
		s.fail(w, r, "/", err)
	}
	return err != nil
}

// fail shows an error, and counts it where it is one of who signs in.
func (s *signin) fail(w http.ResponseWriter, r *http.Request, next string, err error) {
	err = s.Authn.Counted(apiserver.Shown(r), err)
	own, ok := errors.AsType[*farm.Error](err)
	if !ok {
		s.Log.Error("sign-in failed", "path", r.URL.Path, "error", err)
		own = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "internal error",
			Hint: "the server's log says more"}
	}
	s.show(w, statusOf(own), view{Next: localPath(next), Message: own.Message, Hint: own.Hint})
}

func browserOf(r *http.Request) accounts.Browser {
	shown := apiserver.Shown(r)
	b := accounts.Browser{Client: r.UserAgent(), Session: shown.Session}
	if shown.Address.IsValid() {
		b.Address = shown.Address.Unmap().String()
	}
	return b
}

// localPath is where to go on, whatever a link says; not to a page of this package, which would ask for a sign-in anew.
func localPath(next string) string {
	if next = apiserver.LocalPath(next, "/"); strings.HasPrefix(next, "/auth/") {
		return "/"
	}
	return next
}
