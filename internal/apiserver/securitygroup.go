package apiserver

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/wire"
)

// SecurityGroupRef names a security group in a path.
type SecurityGroupRef struct {
	Project string `path:"project" maxLength:"100" example:"atlas"`
	Name    string `path:"name" maxLength:"100" example:"web"`
}

func securityGroupView(g server.SecurityGroupView) fleet.SecurityGroup {
	out := wire.SecurityGroup(g.SecurityGroup)
	out.VMs = g.VMs
	return out
}

func (a *API) securityGroupRoutes() {
	const path = "/v1/security-groups/{project}/{name}"
	handle(a, route{method: "GET", path: "/v1/security-groups", id: "list-security-groups", whole: true, tag: "catalogue",
		summary: "List security groups: what virtual machines may send and receive"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Paging
			Project string `query:"project" maxLength:"100"`
		}) (*one[fleet.Page[fleet.SecurityGroup]], error) {
			return listOf(ctx, a, in.Paging, securityGroupView,
				func(g fleet.SecurityGroup) string { return g.Project + "/" + g.Name },
				func() ([]server.SecurityGroupView, error) {
					return a.server.SecurityGroups.List(ctx, who, in.Project)
				})
		})
	handle(a, route{method: "GET", path: path, id: "get-security-group", tag: "catalogue",
		summary: "One security group"},
		func(ctx context.Context, who farm.Identity, in *struct{ SecurityGroupRef }) (*one[fleet.SecurityGroup],
			error) {
			g, err := a.server.SecurityGroups.Get(ctx, who, in.Project, in.Name)
			if err != nil {
				return nil, err
			}
			return oneOf(securityGroupView(g), g.Revision), nil
		})
	handle(a, route{method: "PUT", path: path, id: "put-security-group", tag: "catalogue",
		summary: "Make a security group, or give it other rules"},
		func(ctx context.Context, who farm.Identity, in *struct {
			SecurityGroupRef
			Put
			Body struct {
				Rules []fleet.SecurityRule `json:"rules" maxItems:"100"`
			}
		}) (*one[fleet.SecurityGroup], error) {
			rules, err := wire.ParseSecurityRules(in.Body.Rules)
			if err != nil {
				return nil, err
			}
			g, err := a.server.SecurityGroups.Put(ctx, who,
				farm.SecurityGroup{Project: in.Project, Name: in.Name, Rules: rules}, in.seen)
			if err != nil {
				return nil, err
			}
			return oneOf(securityGroupView(g), g.Revision), nil
		})
	handle(a, route{method: "DELETE", path: path, id: "delete-security-group", tag: "catalogue", status: 204,
		summary: "Delete a security group that no virtual machine and no rule names"},
		func(ctx context.Context, who farm.Identity, in *struct {
			SecurityGroupRef
			Seen
		}) (*nothing, error) {
			return &nothing{}, a.server.SecurityGroups.Delete(ctx, who, in.Project, in.Name, in.seen)
		})
}
