package apiserver

import (
	"context"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

type changesInput struct {
	Kind  []string `query:"kind,explode" maxItems:"20" doc:"vm, host, cell, project, shape, network, group, user, image, image-name; give it several times; none: all"`
	After int64    `query:"after" minimum:"0" doc:"tell what changed after this revision; 0: from now on"`
	Last  int64    `header:"Last-Event-ID" minimum:"0" doc:"goes before after"`
	Watch bool     `query:"watch" doc:"always so"`
}

func (a *API) serviceRoutes() {
	handle(a, route{method: "GET", path: "/v1/version", id: "version", tag: "service", whose: forAll,
		summary: "Which server this is"}, func(context.Context, farm.Identity, *struct{}) (*one[fleet.Version], error) {
		return oneOf(versionNow(a), 0), nil
	})
	handle(a, route{method: "GET", path: "/v1/status", id: "status", whole: true, tag: "service",
		summary: "How the fleet is, in numbers: of what the caller may see"}, a.status)
	handle(a, route{method: "GET", path: "/v1/openapi.json", id: "openapi", tag: "service", whose: forAll,
		summary: "This description"}, func(context.Context, farm.Identity, *struct{}) (*huma.StreamResponse, error) {
		text, err := a.OpenAPI()
		return &huma.StreamResponse{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", "application/json")
			c.BodyWriter().Write(text)
		}}, err
	})
	r := route{method: "GET", path: "/v1/changes", id: "watch-changes", tag: "service",
		summary: "Watch everything that the caller may see",
		about:   "Changes as server-sent events: their data is a Change, their id its revision."}
	op := a.operation(r)
	op.Responses["200"] = &huma.Response{Description: "Events, until either side has enough",
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: a.schema(reflect.TypeFor[fleet.Change]())}}}
	register(a, r, op, a.changes)
}

func versionNow(a *API) fleet.Version {
	return fleet.Version{Service: "server", Version: a.version, Capability: fleet.Capability, URL: a.server.URL()}
}

func (a *API) changes(ctx context.Context, who farm.Identity, in *changesInput) (*huma.StreamResponse, error) {
	f := &feed{a: a, ctx: ctx, who: who, after: max(in.After, in.Last), filter: server.WatchFilter{Kinds: in.Kind}}
	if f.after == 0 {
		var err error
		if f.after, err = a.server.Revision(ctx); err != nil {
			return nil, err
		}
		f.fresh = true
	}
	changes, err := f.open()
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) { f.run(c, changes) }}, nil
}

// status counts what the caller may see.
func (a *API) status(ctx context.Context, who farm.Identity, _ *struct{}) (*one[fleet.Status], error) {
	out := fleet.Status{Version: versionNow(a), Leader: a.server.Leads(), Hosts: map[string]int{},
		VMs: map[string]int{}, Versions: map[string]int{}}
	hosts, err := a.server.Hosts.List(ctx, who, server.HostFilter{})
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		out.Hosts[string(h.State)]++
		out.Versions[h.Facts.Version]++
	}
	vms, revision, err := a.server.VMs.Count(ctx, who)
	for state, n := range vms {
		out.VMs[string(state)] = n
	}
	if err != nil {
		return nil, err
	}
	out.Revision = revision
	out.Warnings, err = a.server.Links.CAWarnings(ctx)
	return oneOf(out, 0), err
}
