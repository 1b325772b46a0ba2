package apiserver

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// UsageChoice chooses records of usage.
type UsageChoice struct {
	From    string `query:"from" maxLength:"7" example:"2026-10" doc:"month; empty: this one, or that of to"`
	To      string `query:"to" maxLength:"7" example:"2026-10" doc:"month, included"`
	User    string `query:"user" maxLength:"100"`
	Project string `query:"project" maxLength:"100"`
	Cell    string `query:"cell" maxLength:"100"`
	Kind    string `query:"kind" enum:"job,worker,vm,metal"`
}

func (c UsageChoice) query(by string) fleet.UsageQuery {
	return fleet.UsageQuery{From: c.From, To: c.To, By: by, User: c.User, Project: c.Project, Cell: c.Cell,
		Kind: c.Kind}
}

func (a *API) usageRoutes() {
	handle(a, route{method: "GET", path: "/v1/usage", id: "sum-usage", whole: true, tag: "usage",
		summary: "What virtual machines have used, added up",
		about:   "Of what the caller may see: one's own, that of projects and cells in which one has a role, or all."},
		func(ctx context.Context, who farm.Identity, in *struct {
			UsageChoice
			By string `query:"by" maxLength:"20" default:"project" doc:"user, project, account, vo, cell, host, kind, month"`
		}) (*one[fleet.UsageSummary], error) {
			return answered(a.server.Usage.Sum(ctx, who, in.query(in.By)))
		})
	handle(a, route{method: "GET", path: "/v1/usage/records", id: "list-usage", whole: true, tag: "usage",
		summary: "Records of what virtual machines have used"},
		func(ctx context.Context, who farm.Identity, in *struct {
			UsageChoice
			Paging
		}) (*one[fleet.Page[api.Usage]], error) {
			return answered(a.server.Usage.Records(ctx, who, in.query(""), in.After, in.Limit))
		})
	handle(a, route{method: "POST", path: "/v1/usage/months/{month}/close", id: "close-usage", tag: "usage",
		summary: "Close a month and those before it, for good",
		about:   "Records that come later count in the first month that is open, and say that they are late."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Month string `path:"month" maxLength:"7" example:"2026-10"`
		}) (*one[fleet.UsageClosed], error) {
			out, err := a.server.Usage.CloseMonth(ctx, who, in.Month)
			if err != nil {
				return nil, err
			}
			return oneOf(out, 0), nil
		})
	outsideRoutes(a)
	hostRoute(a, route{method: "POST", path: fleet.RouteUsage, id: "bring-usage", whose: forHosts,
		tag: "Link to hosts", summary: "Bring records of what virtual machines of a host have used",
		about: "A record that the server has already does nothing."}, reflect.TypeFor[fleet.UsageBatch](),
		reflect.TypeFor[fleet.UsageTaken](), a.hosts.usage)
}

// outsideRoutes are those of records that count for nobody.
func outsideRoutes(a *API) {
	handle(a, route{method: "GET", path: "/v1/usage/outside", id: "list-usage-outside", tag: "usage",
		summary: "Records of hosts that count for nobody",
		about: "A host cannot have run what they say, as far as the server knows, or they were withdrawn. They are in no " +
			"sum and no export. Of cells in which the caller has a role, or all."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Host string    `query:"host" maxLength:"100" doc:"name"`
			Why  string    `query:"why" maxLength:"20" doc:"the word of their reason, as cores or withdrawn"`
			From time.Time `query:"from" doc:"they ended then or later"`
			To   time.Time `query:"to" doc:"they ended before"`
			Paging
		}) (*one[fleet.Page[api.Usage]], error) {
			return answered(a.server.Usage.Outside(ctx, who, fleet.OutsideQuery{Host: in.Host, Why: in.Why,
				From: in.From, To: in.To}, in.After, in.Limit))
		})
	handle(a, route{method: "POST", path: "/v1/usage/withdraw", id: "withdraw-usage", tag: "usage",
		summary: "Take records of a host back",
		about: "They count for nobody from then on, and do not come back when the host brings them again. Records of " +
			"closed months go too, and records of batch systems stay."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Body fleet.UsageWithdrawal
		}) (*one[fleet.UsageWithdrawn], error) {
			out, err := a.server.Usage.Withdraw(ctx, who, in.Body)
			if err != nil {
				return nil, err
			}
			return oneOf(out, 0), nil
		})
}

func (l hostLinks) usage(w http.ResponseWriter, r *http.Request) {
	in, err := read[fleet.UsageBatch](r)
	if err != nil {
		l.answerHost(w, r, nil, err)
		return
	}
	out, err := l.api.server.Usage.Take(r.Context(), callerOf(r.Context()), in)
	l.answerHost(w, r, out, err)
}
