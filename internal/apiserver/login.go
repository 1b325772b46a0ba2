package apiserver

import (
	"context"
	"errors"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/wire"
)

// logins are for command lines that sign in and out.
func (s signInRoutes) logins() {
	handle(s.API, route{method: "GET", path: "/v1/auth/issuers", id: "list-issuers", tag: "access", whose: forAll,
		summary: "List the issuers by which people sign in"},
		func(context.Context, farm.Identity, *struct{}) (*one[fleet.Page[fleet.Issuer]], error) {
			out := fleet.Page[fleet.Issuer]{Items: []fleet.Issuer{}}
			for _, i := range s.issuers.All() {
				out.Items = append(out.Items, fleet.Issuer{Name: i.Name, Title: i.Title, URL: i.URL,
					ClientID: i.DeviceClientID, Scopes: i.AllScopes()})
			}
			return oneOf(out, 0), nil
		})
	handle(s.API, route{method: "POST", path: "/v1/auth/login", id: "login", tag: "access", whose: forAll,
		summary: "Exchange an identity token of an issuer for a session",
		about: "The token was given to the issuer's client of command lines, at most ten minutes ago. Each is taken " +
			"once. The session's secret is shown as a token: Authorization: Bearer grs_…"},
		func(ctx context.Context, _ farm.Identity, in *struct{ Body fleet.LoginRequest }) (
			*one[fleet.LoginAnswer], error) {
			out, err := s.login(ctx, in.Body)
			if err != nil {
				return nil, s.authn.Counted(shownOf(ctx), err)
			}
			return oneOf(out, 0), nil
		})
	handle(s.API, route{method: "POST", path: "/v1/auth/logout", id: "logout", tag: "access",
		summary: "End the session that the request shows"},
		func(ctx context.Context, _ farm.Identity, _ *struct{}) (*nothing, error) {
			shown := shownOf(ctx)
			text := shown.Token
			if text == "" {
				text = shown.Session
			}
			return &nothing{}, s.server.Accounts.SignOut(ctx, text)
		})
	handle(s.API, route{method: "POST", path: "/v1/auth/explain-claims", id: "explain-claims", tag: "access",
		summary: "What the claims of an issuer would give, and why; nothing is changed, and no issuer is asked"},
		func(ctx context.Context, who farm.Identity, in *struct{ Body fleet.ClaimsRequest }) (
			*one[fleet.ClaimsExplanation], error) {
			out, err := s.explainClaims(ctx, who, in.Body)
			if err != nil {
				return nil, err
			}
			return oneOf(out, 0), nil
		})
}

func (s signInRoutes) login(ctx context.Context, in fleet.LoginRequest) (out fleet.LoginAnswer, err error) {
	issuer, err := s.issuers.Named(in.Issuer)
	if err != nil {
		return out, err
	}
	claims, err := issuer.Identity(ctx, in.Token)
	if err != nil {
		return out, err
	}
	b := accounts.Browser{Client: "grange login"}
	if address := shownOf(ctx).Address; address.IsValid() {
		b.Address = address.Unmap().String()
	}
	session, text, err := s.server.Accounts.SignInOnce(ctx, claims, b)
	return fleet.LoginAnswer{Session: sessionView(session), Secret: text}, err
}

func (s signInRoutes) explainClaims(ctx context.Context, who farm.Identity, in fleet.ClaimsRequest) (
	out fleet.ClaimsExplanation, err error) {
	claims, err := s.issuers.Claims(in.Issuer, in.Claims)
	if err != nil {
		return out, err
	}
	said, err := s.server.Accounts.ExplainClaims(ctx, who, claims)
	if err != nil {
		return out, err
	}
	out = fleet.ClaimsExplanation{Issuer: claims.Issuer, User: said.User, New: said.New, Own: []fleet.Grant{},
		Rules: []fleet.Mapping{}, Ignored: append([]string{}, said.Mapped.Ignored...)}
	if own, ok := errors.AsType[*farm.Error](said.Refused); ok {
		out.Refused, out.Hint = own.Message, own.Hint
	}
	for _, g := range said.Own {
		out.Own = append(out.Own, grantView(g))
	}
	for _, m := range said.Mapped.Rules {
		out.Rules = append(out.Rules, wire.Mapping(m))
	}
	return out, nil
}
