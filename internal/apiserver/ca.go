package apiserver

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/hostlink"
)

func (a *API) caRoutes() {
	handle(a, route{method: "GET", path: "/v1/ca", id: "get-ca", whole: true, tag: "service",
		summary: "The fleet's certificate authorities, and whom a rotation waits for"},
		func(ctx context.Context, who farm.Identity, _ *struct{}) (*one[fleet.CA], error) {
			return answerCA(a.server.Links.CA(ctx, who))
		})
	handle(a, route{method: "POST", path: "/v1/ca/rotate", id: "rotate-ca", tag: "service",
		summary: "Make the authority that replaces the present one"},
		func(ctx context.Context, who farm.Identity, _ *struct{}) (*one[fleet.CA], error) {
			return answerCA(a.server.Links.RotateCA(ctx, who))
		})
	handle(a, route{method: "POST", path: "/v1/ca/retire", id: "retire-ca", tag: "service",
		summary: "Retire the authority that is replaced",
		about: "Refused where a host or a join token still needs it that is not named: those that are named are " +
			"cut off."}, func(ctx context.Context, who farm.Identity,
		in *struct{ Body fleet.RetireRequest }) (*one[fleet.CA], error) {
		return answerCA(a.server.Links.RetireCA(ctx, who, in.Body.Without))
	})
}

func answerCA(v hostlink.CAView, err error) (*one[fleet.CA], error) {
	if err != nil {
		return nil, err
	}
	out := fleet.CA{Authorities: []fleet.Authority{}, Site: v.Site, RetiresAt: timeOrNil(v.Ends)}
	for i, ca := range v.Authorities {
		out.Authorities = append(out.Authorities,
			fleet.Authority{Fingerprint: ca.Fingerprint(), Certificate: string(ca.PEM()), Since: ca.Made().UTC(),
				Until: ca.Certificate.NotAfter.UTC(), Next: ca.Next, Signs: i == 0, Hosts: ca.Hosts,
				Trusting: ca.Trusting})
	}
	for _, w := range v.Waited {
		wait := fleet.CAWait{Host: w.Host, Token: w.Token, Why: w.Why, Seen: timeOrNil(w.Seen), Away: w.Away}
		out.Waits = append(out.Waits, wait)
	}
	return oneOf(out, 0), nil
}
