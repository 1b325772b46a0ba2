package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/peer"
	"github.com/grange-project/grange/internal/throttle"
)

// CodeNoRoute is an error code; see docs/errors.md.
const CodeNoRoute farm.Code = "no-route"

// CodeLongHeader is an error code; see docs/errors.md.
const CodeLongHeader farm.Code = "header-too-large"

// Bounds of a request.
const (
	maxBody     = 1 << 20  // bytes, from people
	maxFarmBody = 16 << 20 // bytes: a site of ten thousand users has some
	maxPiece    = fleet.UploadPiece
	maxHostBody = 16 << 20 // bytes: a report has all VMs and the topology
	maxAnyBody  = 64 << 10 // bytes, from whom nobody knows: an enrolment has a token and a signing request
	maxHeader   = 32 << 10 // bytes, with the path
	// bytes, which anybody may have us read; beyond it net/http hangs up, and no problem says why
	hardHeader = 2 * maxHeader
	headerTime = 10 * time.Second // of a request's header, and of the TLS handshake
	bodyTime   = 30 * time.Second
	writeTime  = 30 * time.Second // for each piece of an answer: who takes none for so long has gone
	idleTime   = 2 * time.Minute
)

// callerKey is where edge puts who calls, and shownKey what that was known by; callerOf and shownOf take them out.
type (
	callerKey struct{}
	shownKey  struct{}
)

// callerOf is who calls.
func callerOf(ctx context.Context) farm.Identity {
	who, _ := ctx.Value(callerKey{}).(farm.Identity)
	return who
}

// shownOf is what the caller shows of itself, for routes on which nobody has looked at it.
func shownOf(ctx context.Context) authn.Shown {
	s, _ := ctx.Value(shownKey{}).(authn.Shown)
	return s
}

// ServeHTTP is the edge: bounds, identity, and problems where there is no route.
func (a *API) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: plain, control: http.NewResponseController(plain), came: time.Now()}
	setCommon(w.Header())
	missing, pattern := a.mux.Handler(r)
	defer func() {
		if w.status != 0 { // otherwise its connection was taken from net/http
			a.server.Meter.Answered(classes[a.whose[pattern]], w.status, w.began.Sub(w.came))
		}
	}()
	defer a.recover(w, r)
	if pattern == "" || r.URL.Path != clean(r.URL.Path) {
		noRoute(w, r, missing, pattern == "")
		return
	}
	shown := shownBy(r)
	whose := a.whose[pattern]
	who, err := a.admit(w, r, whose, shown)
	if err == nil {
		err = owned(r.Context(), who)
	}
	if err != nil && (whose == forBrowsers || whose == forAnyBrowser) {
		who, r, err = farm.Identity{}, refusedPage(r, err), nil
	}
	if err != nil {
		a.answerRefusal(w, r, err)
		return
	}
	ctx := context.WithValue(context.WithValue(r.Context(), callerKey{}, who), shownKey{}, shown)
	r = r.WithContext(ctx)
	r.URL = bareWatch(r.URL)
	a.mux.ServeHTTP(w, r)
}

// setCommon sets what every answer's header has.
func setCommon(h http.Header) {
	h.Set(fleet.CapabilityHeader, strconv.Itoa(fleet.Capability))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// clean is the path as the mux has it; it would send callers to it, and they would lose their bodies and tokens on the
// way.
func clean(p string) string {
	c := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && c != "/" {
		c += "/"
	}
	return c
}

// admit finds out who calls, and reads the body within its bounds.
func (a *API) admit(w *writer, r *http.Request, whose string, shown authn.Shown) (farm.Identity, error) {
	if err := a.sameOrigin(r, shown); err != nil {
		return farm.Identity{}, err
	}
	if headerSize(r) > maxHeader {
		return farm.Identity{}, &farm.Error{Kind: farm.Invalid, Code: CodeLongHeader,
			Message: fmt.Sprintf("the path and the header have more than %v", farm.Bytes(maxHeader)),
			Hint:    "name fewer things at once"}
	}
	var who farm.Identity
	var err error
	limit := int64(maxBody)
	switch whose {
	case forPeople, forBrowsers:
		who, err = a.authn.Identify(r.Context(), shown)
		switch {
		case r.URL.Path == applyPath:
			limit = maxFarmBody
		case strings.HasPrefix(r.URL.Path, uploadPath):
			limit = maxPiece
		}
	case forHosts:
		who, err = a.authn.IdentifyHost(r.Context(), shown)
		limit = maxHostBody
	case forAll, forAnyBrowser:
		limit = maxAnyBody
	}
	if err != nil {
		return who, err
	}
	return who, readBody(w, r, limit)
}

// headerSize is about what a request's header took on its way.
func headerSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// bareWatch lets "?watch" say "?watch=true".
func bareWatch(u *url.URL) *url.URL {
	q := u.Query()
	if v, ok := q["watch"]; !ok || v[0] != "" {
		return u
	}
	q.Set("watch", "true")
	c := *u
	c.RawQuery = q.Encode()
	return &c
}

// shownBy is what a request shows of its caller.
func shownBy(r *http.Request) authn.Shown {
	var s authn.Shown
	if peer, ok := r.Context().Value(peerKey{}).(uint32); ok {
		s.Socket, s.UID = true, peer
	} else if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		s.Address = at.Addr()
	}
	if r.TLS != nil {
		s.Chain = r.TLS.PeerCertificates
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		s.Token = strings.TrimSpace(token)
	}
	if c, err := r.Cookie(sessionCookie); err == nil {
		s.Session = c.Value
	}
	return s
}

// readBody reads the whole body, so that no handler waits for a slow caller, and no read deadline is left that would
// end a long answer.
func readBody(w *writer, r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	tooLarge := &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooLarge,
		Message: fmt.Sprintf("the body has more than %v", farm.Bytes(limit)), Hint: "send less at once"}
	// it waits for our word before it sends; any other is read as far as it may be long
	if r.ContentLength > limit && r.Header.Get("Expect") != "" {
		return tooLarge
	}
	w.control.SetReadDeadline(time.Now().Add(bodyTime)) // what cannot have one is a test's
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	w.control.SetReadDeadline(time.Time{})
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return tooLarge
	case err != nil:
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: "the body did not arrive", Err: err}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return nil
}

// answerRefusal writes why a request came to no route.
func (a *API) answerRefusal(w http.ResponseWriter, r *http.Request, err error) {
	own := new(farm.Error)
	// whoever tries keys is not told which part of one was right
	if errors.As(err, &own) && own.Err != nil && own.Kind == farm.Denied {
		if room, more := a.refusals.Add("certificate " + throttle.Party(shownBy(r).Address)); room {
			a.log.Info("request refused", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "error", err,
				"more", more)
		}
		bare := *own
		bare.Err = nil
		err = &bare
	}
	p := newProblem(err)
	if own != nil && own.Code == CodeLongHeader {
		p.Status = http.StatusRequestHeaderFieldsTooLarge
	}
	switch p.Status {
	case http.StatusInternalServerError:
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="grange"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "10")
		if own.Code == farm.CodeConnections {
			w.Header().Set("Connection", "close")
		}
	}
	p.write(w)
}

// noRoute answers what no route does: OPTIONS by the methods that there are, all else by a problem.
func noRoute(w http.ResponseWriter, r *http.Request, missing http.Handler, ask bool) {
	status := http.StatusNotFound
	var told verdict
	if ask {
		told = verdict{header: http.Header{}}
		missing.ServeHTTP(&told, r)
		status = told.status
	}
	allow := told.header.Get("Allow")
	if allow != "" {
		w.Header().Set("Allow", allow)
	}
	if allow != "" && r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	e := &farm.Error{Kind: farm.NotFound, Code: CodeNoRoute, Message: "there is nothing at " + r.URL.Path,
		Hint: "docs/reference/openapi.json lists what there is"}
	if allow != "" {
		e.Message, e.Hint = r.Method+" is not a method of "+r.URL.Path, "there are "+allow
	}
	p := newProblem(e)
	p.Status = status
	p.write(w)
}

// verdict takes what the mux says of a request without a route.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }
func (v *verdict) WriteHeader(status int)      { v.status = status }

// recover keeps one broken request from ending the server.
func (a *API) recover(w http.ResponseWriter, r *http.Request) {
	what := recover()
	if what == nil {
		return
	}
	if what == http.ErrAbortHandler {
		panic(what)
	}
	a.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(what), "stack",
		string(debug.Stack()))
	newProblem(errors.New("panic")).write(w)
}

// writer gives each piece of an answer its own time.
type writer struct {
	http.ResponseWriter
	control     *http.ResponseController
	came, began time.Time // the request, and its answer
	status      int       // of the answer; 0: there is none yet
}

// WriteHeader notes when the answer began.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.began = status, time.Now()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status, w.began = http.StatusOK, time.Now()
	}
	w.control.SetWriteDeadline(time.Now().Add(writeTime))
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// peerKey is where Serve puts the uid of a socket's other end.
type peerKey struct{}

// withPeer is for http.Server.ConnContext.
func (a *API) withPeer(ctx context.Context, conn net.Conn) context.Context {
	if c := boundedOf(conn); c != nil {
		ctx = context.WithValue(ctx, connKey{}, c)
	}
	if _, ok := conn.(*tls.Conn); ok {
		return context.WithValue(ctx, parkKey{}, true)
	}
	if c, ok := conn.(*connection); ok {
		conn = c.Conn
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	cred, err := peer.Cred(u)
	if err != nil {
		a.log.Error("peer credentials", "error", err)
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}
