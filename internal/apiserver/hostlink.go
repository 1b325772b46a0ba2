package apiserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/throttle"
	"github.com/grange-project/grange/internal/transfer"
)

// Requests of hosts are answered without huma: thousands of hosts poll every half minute, agents of later releases send
// fields that this one does not know, and each poll that waits should hold little.

// hostLinks answers hosts: they enrol, report, ask what is wanted of them, and bring streams.
type hostLinks struct{ api *API }

// routes are those between hosts and server.
func (l hostLinks) routes() {
	tag := "Link to hosts"
	hostRoute(l.api, route{method: "POST", path: fleet.RouteEnrol, id: "enrol-host", whose: forAll, tag: tag,
		summary: "Trade a join token for a host's certificate", about: "Wrong tokens are counted by address."},
		reflect.TypeFor[fleet.EnrolRequest](), reflect.TypeFor[fleet.EnrolAnswer](), l.enrol)
	hostRoute(l.api, route{method: "POST", path: fleet.RouteRenew, id: "renew-host", whose: forHosts, tag: tag,
		summary: "Get a host's next certificate"}, reflect.TypeFor[fleet.RenewRequest](),
		reflect.TypeFor[fleet.EnrolAnswer](), l.renew)
	hostRoute(l.api, route{method: "POST", path: fleet.RouteReport, id: "report-host", whose: forHosts, tag: tag,
		summary: "Tell what a host is and how its VMs are"}, reflect.TypeFor[fleet.Report](),
		reflect.TypeFor[fleet.ReportAnswer](), l.report)
	hostRoute(l.api, route{method: "GET", path: fleet.RouteWanted, id: "poll-wanted", whose: forHosts, tag: tag,
		summary: "Wait for what is wanted of a host",
		about: "Answers at once when the list is another one than that of the revision `after`, and with 204 when " +
			"nothing changed for a while. `instance` is the agent's, as it reported."},
		nil, reflect.TypeFor[fleet.WantedList](), l.wanted)
	hostRoute(l.api, route{method: "POST", path: fleet.RouteStream + "{id}", id: "bring-stream", whose: forHosts,
		tag:     tag,
		summary: "Bring a stream that was ordered, or say why not",
		about: "The connection is upgraded to grange-stream: bytes both ways. Without an upgrade the body is the " +
			"problem for which there is no stream."}, reflect.TypeFor[api.Problem](), nil, l.bring)
}

// hostRoute registers a route, and describes it.
func hostRoute(a *API, r route, in, out reflect.Type, do http.HandlerFunc) {
	op := a.operation(r)
	if in != nil {
		op.RequestBody = &huma.RequestBody{Required: r.path != fleet.RouteStream+"{id}",
			Content: map[string]*huma.MediaType{"application/json": {Schema: a.schema(in)}}}
	}
	status := "204"
	if out != nil {
		status = "200"
		op.Responses[status] = &huma.Response{Description: "Done",
			Content: map[string]*huma.MediaType{"application/json": {Schema: a.schema(out)}}}
	} else {
		op.Responses[status] = &huma.Response{Description: "Taken note of"}
	}
	switch r.path {
	case fleet.RouteWanted:
		op.Responses["204"] = &huma.Response{Description: "Nothing changed"}
		op.Parameters = []*huma.Param{
			{Name: "after", In: "query", Description: "revision of the list that the host has; 0 or nothing: none",
				Schema: &huma.Schema{Type: "integer"}},
			{Name: "instance", In: "query", Required: true, Schema: &huma.Schema{Type: "string"}}}
	case transfer.RouteIndex, transfer.RouteHeld, transfer.RoutePiece:
		describeChunks(&op)
	case fleet.RouteStream + "{id}":
		op.Responses["101"] = &huma.Response{Description: "Bytes both ways"}
		op.Parameters = []*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}}
	}
	a.huma.OpenAPI().AddOperation(&op)
	a.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		if err := a.hosts.understood(req); err != nil {
			a.hosts.answerHost(w, req, nil, err)
			return
		}
		do(w, req)
	})
}

// understood refuses agents that are too old or too new. One that does not say is taken to be one of the first.
func (l hostLinks) understood(r *http.Request) error {
	n, err := strconv.Atoi(cmp.Or(r.Header.Get(fleet.CapabilityHeader), "1"))
	if err != nil {
		return badHostRequest(err)
	}
	if host := callerOf(r.Context()).Host; host != "" {
		return l.api.server.Links.Admit(host, n)
	}
	return hostlink.CheckCapability(n) // of a machine that is no host yet
}

func badHostRequest(err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: "the request cannot be read", Err: err,
		Hint: "docs/reference/openapi.json says what this route takes"}
}

// read reads the body of a host's request, which the edge has bounded. Unknown fields are passed over.
func read[T any](r *http.Request) (v T, err error) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return v, badHostRequest(err)
	}
	return v, nil
}

// answerHost writes an answer, or a problem.
func (l hostLinks) answerHost(w http.ResponseWriter, r *http.Request, answer any, err error) {
	if err != nil {
		p := newProblem(err)
		if p.Status == http.StatusInternalServerError && r.Context().Err() == nil {
			l.api.log.Error("request of a host", "route", r.Pattern, "error", err)
		}
		p.write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		l.api.log.Debug("answer to a host", "error", err)
	}
}

func (l hostLinks) enrol(w http.ResponseWriter, r *http.Request) {
	in, err := read[fleet.EnrolRequest](r)
	if err != nil {
		l.answerHost(w, r, nil, err)
		return
	}
	shown := shownOf(r.Context())
	out, err := l.api.server.Links.Enrol(r.Context(), shown.Chain, in)
	if farm.IsCode(err, hostlink.CodeJoinRefused) {
		if room, more := l.api.refusals.Add(r.Pattern + " " + throttle.Party(shown.Address)); room {
			l.api.log.Warn("enrolment refused", "from", r.RemoteAddr, "error", err, "more", more)
		}
		err = l.api.authn.Failed(shown, err)
	}
	l.answerHost(w, r, out, err)
}

func (l hostLinks) renew(w http.ResponseWriter, r *http.Request) {
	in, err := read[fleet.RenewRequest](r)
	if err != nil {
		l.answerHost(w, r, nil, err)
		return
	}
	out, err := l.api.server.Links.Renew(r.Context(), callerOf(r.Context()), in)
	l.answerHost(w, r, out, err)
}

func (l hostLinks) report(w http.ResponseWriter, r *http.Request) {
	in, err := read[fleet.Report](r)
	if err != nil {
		l.answerHost(w, r, nil, err)
		return
	}
	out, err := l.api.server.Links.Report(r.Context(), callerOf(r.Context()), in)
	l.answerHost(w, r, out, err)
}

func (l hostLinks) wanted(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	after, err := strconv.ParseInt(query.Get("after"), 10, 64)
	if err != nil && query.Get("after") != "" {
		l.answerHost(w, r, nil, badHostRequest(err))
		return
	}
	if parkable(r) {
		l.api.lot.poll(w, r, query.Get("instance"), after)
		return
	}
	ctx, cancel := l.api.patient(r.Context())
	defer cancel()
	list, changed, err := l.api.server.Links.Wanted(ctx, callerOf(r.Context()), query.Get("instance"), after)
	if err == nil && !changed {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	l.answerHost(w, r, list, err)
}

func (l hostLinks) bring(w http.ResponseWriter, r *http.Request) {
	id, host := r.PathValue("id"), callerOf(r.Context()).Host
	if !strings.EqualFold(r.Header.Get("Upgrade"), fleet.UpgradeStream) {
		in, err := read[api.Problem](r)
		if err == nil {
			err = l.api.server.Streams.Refuse(host, id,
				&farm.Error{Kind: farm.Kind(in.Title), Code: farm.Code(strings.TrimPrefix(in.Type, "grange:")),
					Message: in.Detail, Hint: in.Hint})
		}
		if err != nil {
			l.answerHost(w, r, nil, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	conn, err := Upgrade(w)
	if err != nil {
		l.api.log.Error("stream of a host", "host", host, "error", err)
		return
	}
	defer conn.Close()
	if err := l.api.server.Streams.Bring(host, id, conn); err != nil {
		l.api.log.Info("stream of a host that nobody waits for", "host", host, "error", err)
	}
}
