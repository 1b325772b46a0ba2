package apiserver

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/placement"
)

func (a *API) whyRoutes() {
	handle(a, route{method: "GET", path: "/v1/vms/{vm}/why", id: "why-vm", whole: true, tag: "VMs",
		summary: "Where a virtual machine could be, and what keeps it from each other host"},
		func(ctx context.Context, who farm.Identity, in *struct{ VMRef }) (*one[fleet.Why], error) {
			return answerWhy(a.server.WhyOf(ctx, who, in.VM))
		})
	handle(a, route{method: "POST", path: "/v1/why", id: "why", whole: true, tag: "VMs",
		summary: "Where such a virtual machine could be, without making one"},
		func(ctx context.Context, who farm.Identity, in *struct{ Body fleet.VMRequest }) (*one[fleet.Why], error) {
			order, err := orderOf(in.Body)
			if err != nil {
				return nil, err
			}
			return answerWhy(a.server.Why(ctx, who, order))
		})
}

func answerWhy(e placement.Explanation, err error) (*one[fleet.Why], error) {
	if err != nil {
		return nil, err
	}
	out := fleet.Why{Fits: e.Fits, Hosts: e.Hosts, Sums: []fleet.WhySum{}}
	for _, s := range e.Sums {
		out.Sums = append(out.Sums, fleet.WhySum{Constraint: string(s.Constraint), Hosts: s.Hosts, Example: s.Example})
	}
	for i, c := range e.Changes {
		if i == 0 {
			out.Cheapest = c.Text
		}
		out.Changes = append(out.Changes, c.Text)
	}
	for _, h := range e.Each {
		out.Each = append(out.Each, fleet.WhyHost{Host: h.Name, Cell: h.Cell, Fits: h.Fits,
			Constraint: string(h.Constraint), Message: h.Message, Score: h.Score})
	}
	return oneOf(out, 0), nil
}
