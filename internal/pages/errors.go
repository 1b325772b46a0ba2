package pages

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// CodeNoPage is an error code; see docs/errors.md.
const CodeNoPage farm.Code = "no-page"

// trouble is an error as pages show it.
type trouble struct {
	Status  int
	Code    string
	Message string
	Hint    string
	SignIn  string // where the caller may sign in; ""
}

// troubleOf is an error fit for people: what is not a farm.Error says nothing of our inside.
func troubleOf(err error) trouble {
	e, ok := errors.AsType[*farm.Error](err)
	if !ok {
		e = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "something went wrong on the server",
			Hint: "try again; the server's log says more"}
	}
	shown := *e
	shown.Err = nil // of people far away, causes are for the log
	p := wire.Problem(&shown, "the server's log")
	return trouble{Status: p.Status, Code: string(e.Code), Message: e.Message, Hint: e.Hint}
}

// fail answers with a page that says what went wrong.
func (v *visit) fail(err error) {
	if errors.Is(err, context.Canceled) {
		return // nobody waits for it
	}
	v.troubled(troubleOf(err), err)
}

// refuse answers those who are not known: a browser that only looks is sent to where people sign in.
func (v *visit) refuse(err error) {
	t := troubleOf(err)
	if t.Status == http.StatusUnauthorized && v.SignIn != "" {
		t.SignIn = v.SignIn + "?next=" + url.QueryEscape(v.r.URL.RequestURI())
		if v.r.Method == http.MethodGet && v.r.Header.Get("HX-Request") == "" && v.r.Header.Get("Authorization") == "" {
			http.Redirect(v.w, v.r, t.SignIn, http.StatusSeeOther)
			return
		}
	}
	if t.Status == http.StatusUnauthorized {
		v.w.Header().Set("WWW-Authenticate", `Bearer realm="grange"`)
	}
	v.troubled(t, err)
}

func (v *visit) troubled(t trouble, err error) {
	if t.Status >= http.StatusInternalServerError && t.Code == string(farm.CodeInternal) {
		v.Log.Error("page failed", "method", v.r.Method, "path", v.r.URL.Path, "user", v.who.User, "error", err)
	}
	if v.r.Header.Get("HX-Request") != "" { // a part of a page: the rest of it stays
		err = v.render(t.Status, "error", "trouble", t)
	} else {
		err = v.write(t.Status, "error", "That did not work", "", t)
	}
	if err != nil {
		v.Log.Error("page of an error failed", "path", v.r.URL.Path, "error", err)
		http.Error(v.w, t.Message, t.Status)
	}
}
