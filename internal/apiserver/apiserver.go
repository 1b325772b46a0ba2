// Package apiserver is the server's REST API: it finds out who calls, hands requests to package server, and writes what
// that answers as JSON, as problems (RFC 9457), or as events. It describes itself in OpenAPI 3.1. It decides nothing.
package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/throttle"
)

// Options is what an API is made of.
type Options struct {
	Server  *server.Server
	Authn   *authn.Authenticator
	Log     *slog.Logger
	Version string
	// KeepAlive is how often a watch without news says that it lives; 0: every 15 seconds.
	KeepAlive time.Duration
	Pages     []Page        // of people with a browser
	Issuers   *oidc.Issuers // by which people sign in; nil: none
}

// API answers HTTP.
type API struct {
	server    *server.Server
	authn     *authn.Authenticator
	log       *slog.Logger
	version   string
	keepAlive time.Duration
	issuers   *oidc.Issuers
	mux       *http.ServeMux
	huma      huma.API
	problem   *huma.Response    // of every operation
	tooLong   *huma.Response    // what net/http answers in our place, too
	whose     map[string]string // route.whose by pattern of mux
	origin    *http.CrossOriginProtection
	refusals  throttle.Buckets // lines of the log about them, by address
	shares    *shares
	lot       *lot // of polls that wait
	hosts     hostLinks
	ending    context.Context // ends when Serve does: long answers end then
	end       context.CancelFunc
}

// New makes an API with all its routes.
func New(o Options) *API {
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	ending, end := context.WithCancel(context.Background())
	a := &API{server: o.Server, authn: o.Authn, log: o.Log, version: o.Version, keepAlive: o.KeepAlive,
		issuers: o.Issuers, mux: http.NewServeMux(), whose: map[string]string{},
		origin: http.NewCrossOriginProtection(), ending: ending, end: end,
		refusals: throttle.Buckets{Size: 1, Leak: time.Minute, Now: time.Now}}
	a.lot, a.shares, a.hosts = newLot(a), newShares(), hostLinks{a}
	a.huma = humago.New(a.mux, a.config())
	a.problem = &huma.Response{Description: "A problem, as RFC 9457 has it", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: a.schema(reflect.TypeFor[problem]())}}}
	tooLong := *a.problem
	tooLong.Description = "The path and the header are too long: a problem up to 64 KiB, beyond that plain text"
	tooLong.Content =
		map[string]*huma.MediaType{"application/problem+json": a.problem.Content["application/problem+json"],
			"text/plain": {Schema: a.schema(reflect.TypeFor[string]())}}
	a.tooLong = &tooLong
	a.vmRoutes()
	a.fleetHostRoutes()
	a.hosts.routes()
	a.cellRoutes()
	a.accountRoutes()
	signInRoutes{a}.register()
	a.serviceRoutes()
	meterRoutes{a}.register()
	o.Server.Meter.Polls(a.lot.waiting)
	a.caRoutes()
	transferRoutes{a}.add()
	imageRoutes{a}.register()
	a.fileSystemRoutes()
	a.pages(o.Pages)
	a.usageRoutes()
	incidentRoutes{a}.register()
	jobRoutes{a}.register()
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // huma's, which plainProblem replaces
		delete(a.huma.OpenAPI().Components.Schemas.Map(), unused)
	}
	return a
}

// config describes the API, and takes from huma all that is not wanted: documentation pages that load scripts from
// elsewhere, links to schemas in each answer, other formats than JSON.
func (a *API) config() huma.Config {
	c := huma.DefaultConfig("grange", "1")
	c.Info.Description = "The API of a grange server. Every verb of the command line is one of these routes. " +
		"Quantities are bytes and seconds, times are RFC 3339 in UTC; " +
		"an object's revision is its ETag. Errors are problems of RFC 9457, whose type is \"grange:\" and a code " +
		"that docs/errors.md explains."
	c.Info.License = nil
	c.DocsPath, c.SchemasPath, c.OpenAPIPath = "", "", ""
	c.CreateHooks, c.Transformers = nil, []huma.Transformer{plainProblem}
	c.NoFormatFallback = false
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "a token of `grange token create`"},
		"session": {Type: "apiKey", In: "cookie", Name: sessionCookie,
			Description: "of a browser that has signed in at /auth/login; what changes something must come from a " +
				"page of this server"},
		"certificate": {Type: "mutualTLS",
			Description: "a client certificate whose subject is a user's; of a host, the certificate of its enrolment"},
	}
	c.Security = []map[string][]string{{"token": {}}, {"session": {}}, {"certificate": {}}, {}}
	return c
}

// schemaName distinguishes our words from those of the agents' API, which has a Cell and a Host of its own.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[api.Plan]().PkgPath() {
		return "Agent" + name
	}
	return name
}

func (a *API) schema(t reflect.Type) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, "")
}

// Whose a route is.
const (
	forPeople = ""      // whoever is known and is no host
	forHosts  = "hosts" // a host, by its certificate
	forAll    = "all"   // callers that nobody knows too
	// pages, whose callers are people, or that nobody knows; see Page
	forBrowsers   = "browsers"
	forAnyBrowser = "any browser"
)

// route is one route of the API.
type route struct {
	method, path string
	id           string // of the operation in OpenAPI
	summary      string
	about        string // more of it
	whose        string
	status       int // of success; 0: 200, or 204 without an answer
	tag          string
	whole        bool // it reads more of the store than its answer has, so that users do it in turn
}

func (a *API) operation(r route) huma.Operation {
	op := huma.Operation{Method: r.method, Path: r.path, OperationID: r.id, Summary: r.summary, Description: r.about,
		DefaultStatus: r.status,
		// edge bounds both, also for routes that are not huma's
		Tags: []string{r.tag}, MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses:                    map[string]*huma.Response{"default": a.problem, "431": a.tooLong},
		RejectUnknownQueryParameters: r.whose != forHosts} // agents may be of a later release
	a.whose[r.method+" "+r.path] = r.whose
	switch r.whose {
	case forAll:
		op.Security = []map[string][]string{{}}
	case forHosts:
		op.Security = []map[string][]string{{"certificate": {}}}
	}
	return op
}

// handle registers a route. The caller's identity is an argument of do; at this edge it travels in the context, which
// ends here.
func handle[I, O any](a *API, r route, do func(ctx context.Context, who farm.Identity, in *I) (*O, error)) {
	register(a, r, a.operation(r), do)
}

// handleEvents registers a route that answers with a list, or with its changes.
func handleEvents[I any](a *API, r route, list reflect.Type,
	do func(ctx context.Context, who farm.Identity, in *I) (*huma.StreamResponse, error)) {
	op := a.operation(r)
	op.Responses["200"] = &huma.Response{Description: "The list; with watch, changes as server-sent events: their " +
		"data is a Change, their id its revision",
		Content: map[string]*huma.MediaType{"application/json": {Schema: a.schema(list)},
			"text/event-stream": {Schema: a.schema(reflect.TypeFor[fleet.Change]())}}}
	register(a, r, op, do)
}

func register[I, O any](a *API, r route, op huma.Operation,
	do func(ctx context.Context, who farm.Identity, in *I) (*O, error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		who := callerOf(ctx)
		var err error
		if seen, ok := any(in).(interface{ read() error }); ok {
			err = seen.read()
		}
		leave := func() {}
		if err == nil && r.whole {
			leave, err = a.shares.walk(ctx, who)
		}
		var out *O
		if err == nil {
			defer leave()
			out, err = do(ctx, who, in)
		}
		if err != nil {
			return nil, a.refuse(r, who, err)
		}
		return out, nil
	})
}

// refuse makes an error a problem, and logs what is our fault.
func (a *API) refuse(r route, who farm.Identity, err error) error {
	if ended := errors.Is(err, context.Canceled); ended {
		return newProblem(&farm.Error{Kind: farm.Unavailable, Code: farm.CodeInternal,
			Message: "the request ended before its answer"})
	}
	p := newProblem(err)
	if p.Status == http.StatusInternalServerError {
		a.log.Error("request failed", "method", r.method, "route", r.path, "user", who.User, "host", who.Host, "error", err)
	}
	return p
}

// OpenAPI is the description of all routes, as JSON.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().MarshalJSON() }
