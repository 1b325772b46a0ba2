package apiserver

import (
	"context"
	"net/http"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// signInRoutes are about who is signed in, and for command lines that sign in and out.
type signInRoutes struct{ *API }

func (s signInRoutes) register() {
	s.sessions()
	s.logins()
}

func (s signInRoutes) sessions() {
	handle(s.API, route{method: "GET", path: "/v1/sessions", id: "list-sessions", whole: true, tag: "access",
		summary: "List who is signed in, in a browser or by `grange login`"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Paging
			User string `query:"user" maxLength:"100" doc:"empty: the caller's; of root: all"`
		}) (*one[fleet.Page[fleet.Session]], error) {
			return listOf(ctx, s.API, in.Paging, sessionView, func(s fleet.Session) string { return s.ID },
				func() ([]farm.Session, error) { return s.server.Accounts.Sessions(ctx, who, in.User) })
		})
	handle(s.API, route{method: "DELETE", path: "/v1/sessions/{session}", id: "end-session", tag: "access",
		status: http.StatusNoContent, summary: "End a session"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Session string `path:"session" maxLength:"100" doc:"its ID"`
		}) (*nothing, error) {
			return &nothing{}, s.server.Accounts.EndSession(ctx, who, in.Session)
		})
}

func sessionView(s farm.Session) fleet.Session {
	out := fleet.Session{ID: s.ID, User: s.User, Client: s.Client, Address: s.Address, Means: s.Means, Source: s.Source,
		Created: s.Created.UTC(), Used: s.Used.UTC(), Ends: s.Ends.UTC(), Limit: s.Limit.UTC()}
	for _, g := range s.Grants {
		out.Grants = append(out.Grants, grantView(g))
	}
	return out
}
