package apiserver

import (
	"context"
	"net/http"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/accounts"
)

// UserRef names a user in a path.
type UserRef struct {
	User string `path:"user" maxLength:"100" example:"ann"`
}

func (a *API) accountRoutes() {
	a.userRoutes()
	a.tokenRoutes()
	handle(a, route{method: "GET", path: "/v1/auth/whoami", id: "whoami", tag: "access",
		summary: "Whom the server takes the caller for, and how it knows"},
		func(ctx context.Context, who farm.Identity, _ *struct{}) (*one[fleet.Identity], error) {
			grants, err := a.server.Accounts.Whoami(ctx, who)
			if err != nil {
				return nil, err
			}
			out := fleet.Identity{User: who.User, Means: who.Means, Source: who.Source, Role: string(who.Role),
				Projects: who.Projects, Root: who.Root}
			for _, g := range grants {
				out.Grants = append(out.Grants, grantView(g))
			}
			return oneOf(out, 0), nil
		})
	handle(a, route{method: "GET", path: "/v1/auth/explain", id: "explain", tag: "access",
		summary: "Why somebody may do something, or may not: every rule that was looked at"},
		func(ctx context.Context, who farm.Identity, in *struct {
			User   string `query:"user" maxLength:"100" doc:"empty: the caller"`
			Action string `query:"action" required:"true" maxLength:"100" doc:"as vm.create"`
			Target string `query:"target" maxLength:"300" doc:"project:NAME, cell:NAME, host:NAME, vm:PROJECT/NAME, user:NAME, or empty for all"`
		}) (*one[fleet.Explanation], error) {
			said, err := a.server.Accounts.Explain(ctx, who, in.User, policy.Action(in.Action), in.Target)
			if err != nil {
				return nil, err
			}
			user := in.User
			if user == "" {
				user = who.User
			}
			return oneOf(fleet.Explanation{User: user, Action: in.Action, Target: in.Target, Allowed: said.Allowed,
				Why: append([]string{}, said.Why...)}, 0), nil
		})
	handle(a, route{method: "GET", path: "/v1/audit", id: "list-audit", tag: "access",
		summary: "The audit log, newest first: every action, and every refusal with its reason"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Project string `query:"project" maxLength:"100"`
			Who     string `query:"who" maxLength:"100"`
			Before  int64  `query:"before" minimum:"0" doc:"entries older than this ID; as the ID of the last entry of the page before"`
			Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		}) (*one[fleet.Page[fleet.Entry]], error) {
			entries, err := a.server.Entries(ctx, who,
				server.EntryFilter{Project: in.Project, Who: in.Who, Before: in.Before, Limit: in.Limit})
			if err != nil {
				return nil, err
			}
			out := fleet.Page[fleet.Entry]{Items: []fleet.Entry{}}
			for _, e := range entries {
				out.Items = append(out.Items, entryView(e))
			}
			return oneOf(out, 0), nil
		})
}

func (a *API) userRoutes() {
	handle(a, route{method: "GET", path: "/v1/users", id: "list-users", whole: true, tag: "access", summary: "List users"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.User]], error) {
			return listOf(ctx, a, in.Paging, userView, func(u fleet.User) string { return u.Name },
				func() ([]farm.User, error) { return a.server.Accounts.Users(ctx, who) })
		})
	handle(a, route{method: "PUT", path: "/v1/users/{user}", id: "put-user", tag: "access",
		summary: "Make or change a user"}, func(ctx context.Context, who farm.Identity, in *struct {
		UserRef
		Put
		Body struct {
			Name     string   `json:"name,omitempty" doc:"as in the path, or nothing"`
			Subjects []string `json:"subjects,omitempty" maxItems:"100" doc:"of client certificates: CN=Ann,O=Grid or /O=Grid/CN=Ann, or cern:CN=Ann,O=Grid of one authority"`
			Logins   []string `json:"logins,omitempty" maxItems:"100" doc:"who issuers know the user as: an issuer's name and its subject, cern:0f3c"`
			Disabled bool     `json:"disabled,omitempty"`
			Revision int64    `json:"revision,omitempty" doc:"passed over: use If-Match"`
		}
	}) (*one[fleet.User], error) {
		if in.Body.Name != "" && in.Body.Name != in.User {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: "body.name: it is not the name in the path", Hint: "users are not renamed; leave it out"}
		}
		u, err := a.server.Accounts.PutUser(ctx, who,
			farm.User{Name: in.User, Subjects: in.Body.Subjects, Logins: in.Body.Logins,
				Disabled: in.Body.Disabled}, in.seen)
		if err != nil {
			return nil, err
		}
		return oneOf(userView(u), u.Revision), nil
	})
	handle(a, route{method: "DELETE", path: "/v1/users/{user}", id: "delete-user", tag: "access",
		status: http.StatusNoContent, summary: "Delete a user with its roles and tokens; its virtual machines stay"},
		func(ctx context.Context, who farm.Identity, in *struct {
			UserRef
			Seen
		}) (*nothing, error) {
			return &nothing{}, a.server.Accounts.DeleteUser(ctx, who, in.User, in.seen)
		})
	handle(a, route{method: "GET", path: "/v1/grants", id: "list-grants", whole: true, tag: "access", summary: "List roles"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Paging
			User string `query:"user" maxLength:"100"`
		}) (*one[fleet.Page[fleet.Grant]], error) {
			key := func(g fleet.Grant) string { return g.User + " " + g.Project + " " + g.Cell + " " + g.Role }
			return listOf(ctx, a, in.Paging, grantView, key,
				func() ([]farm.Grant, error) { return a.server.Accounts.Grants(ctx, who, in.User) })
		})
	handle(a, route{method: "PUT", path: "/v1/grants", id: "put-grant", tag: "access",
		summary: "Give a role: in one project, in one cell, or, with neither, everywhere"},
		func(ctx context.Context, who farm.Identity, in *struct{ Body fleet.Grant }) (*one[fleet.Grant], error) {
			g := farm.Grant{User: in.Body.User, Role: farm.Role(in.Body.Role), Project: in.Body.Project,
				Cell: in.Body.Cell}
			if err := a.server.Accounts.PutGrant(ctx, who, g); err != nil {
				return nil, err
			}
			return oneOf(grantView(g), 0), nil
		})
	handle(a, route{method: "DELETE", path: "/v1/grants", id: "delete-grant", tag: "access",
		status: http.StatusNoContent, summary: "Take a role away"},
		func(ctx context.Context, who farm.Identity, in *struct {
			User    string `query:"user" required:"true" maxLength:"100"`
			Role    string `query:"role" required:"true" enum:"reader,member,operator,admin"`
			Project string `query:"project" maxLength:"100"`
			Cell    string `query:"cell" maxLength:"100"`
		}) (*nothing, error) {
			return &nothing{}, a.server.Accounts.DeleteGrant(ctx, who,
				farm.Grant{User: in.User, Role: farm.Role(in.Role), Project: in.Project, Cell: in.Cell})
		})
}

func (a *API) tokenRoutes() {
	handle(a, route{method: "GET", path: "/v1/tokens", id: "list-tokens", whole: true, tag: "access",
		summary: "List tokens, without their secrets"}, func(ctx context.Context, who farm.Identity, in *struct {
		Paging
		User string `query:"user" maxLength:"100" doc:"empty: the caller's"`
	}) (*one[fleet.Page[fleet.Token]], error) {
		return listOf(ctx, a, in.Paging, tokenView, func(t fleet.Token) string { return t.ID },
			func() ([]farm.Token, error) { return a.server.Accounts.Tokens(ctx, who, in.User) })
	})
	handle(a, route{method: "POST", path: "/v1/tokens", id: "create-token", tag: "access", status: http.StatusCreated,
		summary: "Make a token", about: "Its secret is in this answer, and nowhere else ever after."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Once
			Body fleet.TokenRequest
		}) (*one[fleet.Token], error) {
			token, text, err := a.server.Accounts.CreateToken(ctx, who,
				accounts.TokenOrder{User: in.Body.User, Note: in.Body.Note, Role: farm.Role(in.Body.Role),
					Projects: in.Body.Projects, Expires: timeOf(in.Body.Expires), Once: in.Key})
			if err != nil {
				return nil, err
			}
			out := tokenView(token)
			out.Secret = text
			return oneOf(out, 0), nil
		})
	handle(a, route{method: "DELETE", path: "/v1/tokens/{token}", id: "delete-token", tag: "access",
		status: http.StatusNoContent, summary: "Take a token back"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Token string `path:"token" maxLength:"100" doc:"its ID"`
		}) (*nothing, error) {
			return &nothing{}, a.server.Accounts.DeleteToken(ctx, who, in.Token)
		})
}
