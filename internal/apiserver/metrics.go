package apiserver

import (
	"context"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/history"
)

// meterRoutes are for those who may read the whole fleet.
type meterRoutes struct{ *API }

func (a meterRoutes) register() {
	r := route{method: "GET", path: "/metrics", id: "metrics", tag: "service",
		summary: "Figures of the fleet and of this server, as Prometheus reads them",
		about:   "For those who may read the whole fleet. docs/reference/metrics.md explains each name."}
	op := a.operation(r)
	op.Responses["200"] = &huma.Response{Description: "Prometheus' text form",
		Content: map[string]*huma.MediaType{"text/plain": {Schema: a.schema(reflect.TypeFor[string]())}}}
	register(a.API, r, op, a.metrics)
	handle(a.API, route{method: "GET", path: "/v1/history", id: "history", tag: "service",
		summary: "What the fleet was like, for charts",
		about: "For those who may read the whole fleet. Without series their names are told. Each server keeps its own " +
			"history, in the time that it runs."}, a.history)
}

func (a meterRoutes) metrics(ctx context.Context, who farm.Identity, _ *struct{}) (*huma.StreamResponse, error) {
	m, err := a.server.Metrics(ctx, who)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		m.Handler().ServeHTTP(w, r)
	}}, nil
}

type historyInput struct {
	Series []string `query:"series,explode" maxItems:"100" doc:"a name, or the beginning of names with a * behind it; give it several times"`
	Since  string   `query:"since" default:"6h" doc:"how far back, up to 2880h"`
}

func (a meterRoutes) history(ctx context.Context, who farm.Identity, in *historyInput) (*one[fleet.History], error) {
	since, err := time.ParseDuration(in.Since)
	if err != nil || since <= 0 || since > fleet.MaxHistory {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: "since: invalid time " + farm.Clean(in.Since, 32), Hint: "give one as 90m or 168h, up to 2880h"}
	}
	h, err := a.server.History(ctx, who, history.Query{Series: in.Series, Since: since})
	if err != nil {
		return nil, err
	}
	out := fleet.History{Step: h.Step.Seconds(), From: h.From, Names: h.Names, Series: []fleet.HistorySeries{}}
	for name, values := range h.Series {
		out.Series = append(out.Series, fleet.HistorySeries{Name: name, Values: known(values)})
	}
	slices.SortFunc(out.Series, func(x, y fleet.HistorySeries) int { return strings.Compare(x.Name, y.Name) })
	return oneOf(out, 0), nil
}

// known are values as JSON has them, which knows no NaN.
func known(values []float32) []*float64 {
	out := make([]*float64, len(values))
	for i, v := range values {
		if n := float64(v); !math.IsNaN(n) {
			out[i] = &n
		}
	}
	return out
}

// MetricsHandler answers scrapes without asking who comes: for a listener that is the site's to protect.
func (a *API) MetricsHandler() http.Handler { return a.server.Meter.Handler() }

// classes of callers, as metrics have them.
var classes = map[string]string{forPeople: "people", forHosts: "hosts", forAll: "anyone"}
