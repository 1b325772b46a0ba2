// Package pages is the server's web pages, for people with a browser. They are rendered here, work without JavaScript,
// and load nothing from elsewhere. It hands what people ask for to package server, shows what that answers, and decides
// nothing: who calls is told to it.
package pages

import (
	"bytes"
	"context"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// Options is what pages are made of.
type Options struct {
	Server  *server.Server
	Log     *slog.Logger
	Version string
	Now     func() time.Time // nil: time.Now
	SignIn  string           // path of the page that signs people in; "": there is none
	SignOut string           // path that takes a POST and ends a session; "": there is none
}

// pages are what visits have in common.
type pages struct {
	Options
	sheets map[string]*template.Template
	maps   *mapCache
}

// New returns all pages, and what they load.
func New(o Options) []apiserver.Page {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &pages{Options: o, sheets: sheets(), maps: newMapCache()}
	all := []apiserver.Page{
		{Pattern: "GET " + assetsPath, Handler: http.HandlerFunc(serveAsset), Open: true}}
	for pattern, do := range routes {
		all = append(all, apiserver.Page{Pattern: pattern, Handler: p.handler(do)})
	}
	return all
}

func (p *pages) handler(do func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeader(w.Header())
		who, err := apiserver.Caller(r)
		v := &visit{pages: p, w: w, r: r, who: who}
		if err != nil {
			v.refuse(err)
			return
		}
		if err := do(v); err != nil {
			v.fail(err)
		}
	})
}

// routes are all pages, and what their forms do.
var routes = map[string]func(*visit) error{
	"GET /{$}":                          func(v *visit) error { return v.to("/vms") },
	"GET /vms":                          (*visit).vms,
	"GET /vms/rows":                     (*visit).vmRows,
	"GET /vms/new":                      (*visit).newVM,
	"POST /vms/new":                     (*visit).createVM,
	"POST /vms/new/check":               (*visit).checkVM,
	"POST /vms/new/outlook":             (*visit).outlookVM,
	"GET /vms/{project}/{name}":         (*visit).vm,
	"GET /vms/{project}/{name}/now":     (*visit).vmNow,
	"GET /vms/{project}/{name}/console": showConsole,
	"GET /vms/{project}/{name}/display": showDisplay,
	"GET /vms/{project}/{name}/{verb}":  (*visit).askVM,
	"POST /vms/{project}/{name}/{verb}": (*visit).doVM,

	"GET /farm":                 (*visit).farm,
	"GET /farm/hosts.json":      (*visit).farmHosts,
	"GET /hosts/{host}":         (*visit).host,
	"GET /hosts/{host}/now":     (*visit).hostNow,
	"POST /hosts/{host}/{verb}": (*visit).doHost,
	"GET /why":                  (*visit).why,
	"GET /audit":                showAudit,
	"GET /projects":             listProjects,
	"GET /jobs/rows":            jobsNow,
	"GET /jobs/{job}":           showJob,
	"GET /jobs/{job}/now":       jobNow,
	"GET /jobs":                 listJobs,
	"GET /images":               listImages,
	"GET /images/{image}":       showImage,
	"GET /networks":             listNetworks,
	"GET /log":                  showLog,

	"GET /incidents":                    listIncidents,
	"GET /incidents/new":                newIncident,
	"POST /incidents/new":               openIncident,
	"GET /incidents/{incident}":         showIncident,
	"GET /incidents/{incident}/now":     incidentNow,
	"POST /incidents/{incident}/{verb}": doIncident,
}

// policyHeader lets pages load what this server has, and run no script and no style that is written into a page: text
// of users that came through as markup could do nothing.
const policyHeader = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// displayPolicy also lets images through that a script makes, as noVNC does of the parts of a screen.
var displayPolicy = strings.Replace(policyHeader, "img-src 'self'", "img-src 'self' data:", 1)

func setHeader(h http.Header) {
	h.Set("Content-Security-Policy", policyHeader)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

// visit is one request, and the answer to it.
type visit struct {
	*pages
	w   http.ResponseWriter
	r   *http.Request
	who farm.Identity
}

// sheet is what a page is rendered from.
type sheet struct {
	Title   string
	Nav     string // entry of the navigation that it belongs to
	User    string
	SignIn  string
	SignOut string
	Version string
	Data    any
}

// ctx is the context of the request.
func (v *visit) ctx() context.Context { return v.r.Context() }

// show answers with a page.
func (v *visit) show(name, title, nav string, data any) error {
	return v.write(http.StatusOK, name, title, nav, data)
}

func (v *visit) write(status int, name, title, nav string, data any) error {
	user := v.who.User
	if v.who.Root {
		user = "root"
	}
	s := sheet{Title: title, Nav: nav, User: user, Version: v.Version, SignIn: v.SignIn, Data: data}
	if v.who.Means == "session" {
		s.SignOut = v.SignOut
	}
	return v.render(status, name, "layout", s)
}

// part answers with a part of a page.
func (v *visit) part(name, part string, data any) error {
	return v.render(http.StatusOK, name, part, data)
}

// render renders all before it answers: half a page is no answer.
func (v *visit) render(status int, name, part string, data any) error {
	var out bytes.Buffer
	if err := v.sheets[name].ExecuteTemplate(&out, part, data); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, err := io.Copy(v.w, &out)
	if err != nil {
		v.Log.Debug("a page was not taken", "path", v.r.URL.Path, "error", err)
	}
	return nil
}

// to sends the browser to another page, with GET.
func (v *visit) to(path string) error {
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}
