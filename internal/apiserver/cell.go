package apiserver

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/wire"
)

// CellRef names a cell in a path.
type CellRef struct {
	Cell string `path:"cell" maxLength:"100" example:"general"`
}

func answerCell(c server.CellView, err error) (*one[fleet.Cell], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(cellView(c), c.Revision), nil
}

func (a *API) cellRoutes() {
	handle(a, route{method: "GET", path: "/v1/cells", id: "list-cells", whole: true, tag: "cells", summary: "List cells"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.Cell]], error) {
			return listOf(ctx, a, in.Paging, cellView, func(c fleet.Cell) string { return c.Name },
				func() ([]server.CellView, error) { return a.server.Cells.List(ctx, who) })
		})
	handle(a, route{method: "GET", path: "/v1/cells/{cell}", id: "get-cell", tag: "cells", summary: "One cell"},
		func(ctx context.Context, who farm.Identity, in *struct{ CellRef }) (*one[fleet.Cell], error) {
			return answerCell(a.server.Cells.Get(ctx, who, in.Cell))
		})
	handle(a, route{method: "POST", path: "/v1/cells/{cell}/open", id: "open-cell", tag: "cells",
		summary: "Open a cell to new virtual machines, and end its drain"},
		func(ctx context.Context, who farm.Identity, in *struct {
			CellRef
			Seen
		}) (*one[fleet.Cell], error) {
			return answerCell(a.server.Cells.Open(ctx, who, in.Cell, in.seen))
		})
	handle(a, route{method: "POST", path: "/v1/cells/{cell}/close", id: "close-cell", tag: "cells",
		summary: "Close a cell to new virtual machines",
		about:   "Those there can still be started, stopped, restarted, resized, deleted."},
		func(ctx context.Context, who farm.Identity, in *struct {
			CellRef
			Seen
			Body *fleet.Reason
		}) (*one[fleet.Cell], error) {
			return answerCell(a.server.Cells.Close(ctx, who, in.Cell, in.seen, reasonOf(in.Body)))
		})
	handle(a, route{method: "POST", path: "/v1/cells/{cell}/drain", id: "drain-cell", tag: "cells",
		summary: "Empty a cell, with all its hosts"}, func(ctx context.Context, who farm.Identity, in *struct {
		CellRef
		Seen
		Body *fleet.DrainRequest
	}) (*one[fleet.Cell], error) {
		return answerCell(a.server.Cells.Drain(ctx, who, in.Cell, in.seen, drainOrder(in.Body)))
	})
	a.catalogueRoutes()
	a.groupRoutes()
	a.securityGroupRoutes()
	a.farmRoutes()
}

func (a *API) catalogueRoutes() {
	handle(a, route{method: "GET", path: "/v1/projects", id: "list-projects", whole: true, tag: "catalogue",
		summary: "List the projects that the caller may see"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.Project]], error) {
			return listOf(ctx, a, in.Paging, projectView, func(p fleet.Project) string { return p.Name },
				func() ([]server.ProjectView, error) { return a.server.Projects(ctx, who) })
		})
	handle(a, route{method: "GET", path: "/v1/projects/{project}", id: "get-project", tag: "catalogue",
		summary: "One project: its quota, what it uses, and where its new virtual machines may go"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Project string `path:"project" maxLength:"100" example:"atlas"`
		}) (*one[fleet.Project], error) {
			p, err := a.server.Project(ctx, who, in.Project)
			if err != nil {
				return nil, err
			}
			return oneOf(projectView(p), p.Revision), nil
		})
	handle(a, route{method: "GET", path: "/v1/shapes", id: "list-shapes", whole: true, tag: "catalogue",
		summary: "List shapes: sizes and tunings of virtual machines"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.Shape]], error) {
			return listOf(ctx, a, in.Paging, wire.Shape, func(s fleet.Shape) string { return s.Name },
				func() ([]farm.Shape, error) { return a.server.Shapes(ctx, who) })
		})
	handle(a, route{method: "GET", path: "/v1/networks", id: "list-networks", whole: true, tag: "catalogue",
		summary: "List networks"}, func(ctx context.Context, who farm.Identity,
		in *struct{ Paging }) (*one[fleet.Page[fleet.Network]], error) {
		return listOf(ctx, a, in.Paging, wire.Network, func(n fleet.Network) string { return n.Name },
			func() ([]farm.FleetNetwork, error) { return a.server.Networks(ctx, who) })
	})
}

func (a *API) groupRoutes() {
	handle(a, route{method: "GET", path: "/v1/groups", id: "list-groups", whole: true, tag: "catalogue",
		summary: "List server groups: which virtual machines are to lie together or apart"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Paging
			Project string `query:"project" maxLength:"100"`
		}) (*one[fleet.Page[fleet.Group]], error) {
			return listOf(ctx, a, in.Paging, groupView, func(g fleet.Group) string { return g.Project + "/" + g.Name },
				func() ([]server.GroupView, error) { return a.server.Groups.List(ctx, who, in.Project) })
		})
	handle(a, route{method: "PUT", path: "/v1/groups/{project}/{name}", id: "put-group", tag: "catalogue",
		summary: "Make or change a server group"}, func(ctx context.Context, who farm.Identity, in *struct {
		Project string `path:"project" maxLength:"100" example:"atlas"`
		Name    string `path:"name" maxLength:"100" example:"apart"`
		Put
		Body struct {
			Affinity string `json:"affinity" enum:"affinity,anti-affinity,soft-affinity,soft-anti-affinity"`
		}
	}) (*one[fleet.Group], error) {
		g, err := a.server.Groups.Put(ctx, who,
			farm.ServerGroup{Project: in.Project, Name: in.Name, Affinity: farm.Affinity(in.Body.Affinity)},
			in.seen)
		if err != nil {
			return nil, err
		}
		return oneOf(groupView(g), g.Revision), nil
	})
	handle(a, route{method: "DELETE", path: "/v1/groups/{project}/{name}", id: "delete-group", tag: "catalogue",
		status: 204, summary: "Delete a server group without members"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Project string `path:"project" maxLength:"100" example:"atlas"`
			Name    string `path:"name" maxLength:"100" example:"apart"`
			Seen
		}) (*nothing, error) {
			return &nothing{}, a.server.Groups.Delete(ctx, who, in.Project, in.Name, in.seen)
		})
}

// applyPath takes larger bodies than others.
const applyPath = "/v1/apply"

func (a *API) farmRoutes() {
	handle(a, route{method: "POST", path: applyPath, id: "apply-farm", tag: "farm",
		summary: "Bring the farm as data, or tell what that would change, and for whom"},
		func(ctx context.Context, who farm.Identity, in *struct{ Body fleet.ApplyRequest }) (*one[fleet.Applied],
			error) {
			f, err := wire.ParseFarm(in.Body.Farm)
			if err != nil {
				return nil, err
			}
			done, err := a.server.Farm.Apply(ctx, who, f,
				apply.ApplyOrder{DryRun: in.Body.DryRun, Prune: in.Body.Prune, Plan: in.Body.Plan})
			if err != nil {
				return nil, err
			}
			out := fleet.Applied{DryRun: in.Body.DryRun, Changes: []fleet.FarmChange{},
				Effects: append([]string{}, done.Effects...), Plan: done.Plan, Revision: done.Revision}
			for _, c := range done.Changes {
				out.Changes = append(out.Changes,
					fleet.FarmChange{Op: c.Op, Kind: c.Kind, Name: c.Name, Details: c.Details})
			}
			return oneOf(out, 0), nil
		})
	handle(a, route{method: "GET", path: "/v1/export", id: "export-farm", whole: true, tag: "farm",
		summary: "The farm as data, for apply-farm"},
		func(ctx context.Context, who farm.Identity, _ *struct{}) (*one[fleet.Farm], error) {
			f, err := a.server.Farm.Export(ctx, who)
			if err != nil {
				return nil, err
			}
			return oneOf(wire.Farm(f), 0), nil
		})
}
