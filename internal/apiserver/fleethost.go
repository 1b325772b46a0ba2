package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/hostlink"
)

// HostRef names a host in a path.
type HostRef struct {
	Host string `path:"host" maxLength:"100" doc:"name or ID" example:"sim-1"`
}

// HostChoice chooses hosts for one order.
type HostChoice struct {
	Host []string `query:"host,explode" required:"true" minItems:"1" maxItems:"1000" doc:"names, IDs or patterns (wn-*); give it several times"`
}

type hostList = one[fleet.Page[fleet.Host]]

func answerHosts(hosts []server.HostView, err error) (*hostList, error) {
	if err != nil {
		return nil, err
	}
	out := fleet.Page[fleet.Host]{Items: []fleet.Host{}}
	for _, h := range hosts {
		out.Items = append(out.Items, hostView(h))
		out.Revision = max(out.Revision, h.Revision)
	}
	return oneOf(out, 0), nil
}

func answerHost(h server.HostView, err error) (*one[fleet.Host], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(hostView(h), h.Revision), nil
}

func drainOrder(r *fleet.DrainRequest) server.DrainOrder {
	if r == nil {
		return server.DrainOrder{}
	}
	return server.DrainOrder{Deadline: timeOf(r.Deadline), Reason: r.Reason}
}

func reasonOf(r *fleet.Reason) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

type hostsWithReason struct {
	HostChoice
	Body *fleet.Reason
}

func (a *API) fleetHostRoutes() {
	handle(a, route{method: "GET", path: "/v1/hosts", id: "list-hosts", whole: true, tag: "hosts", summary: "List hosts"},
		func(ctx context.Context, who farm.Identity, in *struct {
			Paging
			Cell  string `query:"cell" maxLength:"100"`
			Name  string `query:"name" maxLength:"100" doc:"a pattern, as wn-*"`
			State string `query:"state" enum:"open,closed,draining,silent,fenced"`
		}) (*hostList, error) {
			// one more tells that there is a next page
			f := server.HostFilter{Cell: in.Cell, State: server.HostState(in.State), After: in.After,
				Limit: in.Limit + 1}
			if in.Name != "" {
				f.Patterns = []string{in.Name}
			}
			return listOf(ctx, a, in.Paging, hostView, func(h fleet.Host) string { return h.Name },
				func() ([]server.HostView, error) { return a.server.Hosts.List(ctx, who, f) })
		})
	handle(a, route{method: "GET", path: "/v1/findings", id: "list-findings", whole: true, tag: "hosts",
		summary: "What the tuning audit found on hosts, by rule and type of hardware",
		about: "As hosts have last reported it: what it found of them, not of single virtual machines. With since, also " +
			"what came and what went from then on; changes are kept for 400 days."},
		func(ctx context.Context, who farm.Identity, in *struct {
			FindingChoice
			Since time.Time `query:"since" doc:"empty: no changes"`
		}) (*one[fleet.Findings], error) {
			found, err := a.server.Hosts.Audit(ctx, who, server.AuditFilter(in.FindingChoice), in.Since)
			if err != nil {
				return nil, err
			}
			return oneOf(findingsView(found), 0), nil
		})
	handle(a, route{method: "GET", path: "/v1/hosts/{host}", id: "get-host", tag: "hosts", summary: "One host"},
		func(ctx context.Context, who farm.Identity, in *struct{ HostRef }) (*one[fleet.Host], error) {
			return answerHost(a.server.Hosts.Get(ctx, who, in.Host))
		})
	handle(a, route{method: "PATCH", path: "/v1/hosts/{host}", id: "update-host", tag: "hosts",
		summary: "Change labels of a host",
		about:   "A label whose value is empty is taken away; labels that are not named stay."},
		func(ctx context.Context, who farm.Identity, in *struct {
			HostRef
			Seen
			Body fleet.HostUpdate
		}) (*one[fleet.Host], error) {
			order := labelOrder(in.Body)
			order.IfRevision = in.seen
			return answerHost(a.server.Hosts.LabelOne(ctx, who, in.Host, order))
		})
	handle(a, route{method: "POST", path: "/v1/hosts:label", id: "label-hosts", tag: "hosts",
		summary: "Change labels of hosts", about: "As update-host."},
		func(ctx context.Context, who farm.Identity, in *struct {
			HostChoice
			Body fleet.HostUpdate
		}) (*hostList, error) {
			return answerHosts(a.server.Hosts.Label(ctx, who, in.Host, labelOrder(in.Body)))
		})
	handle(a, route{method: "POST", path: "/v1/hosts:open", id: "open-hosts", tag: "hosts",
		summary: "Open hosts to new virtual machines, and end their drains",
		about:   "It answers with the hosts that were chosen."},
		func(ctx context.Context, who farm.Identity, in *struct{ HostChoice }) (*hostList, error) {
			return answerHosts(a.server.Hosts.Open(ctx, who, in.Host))
		})
	handle(a, route{method: "POST", path: "/v1/hosts:close", id: "close-hosts", tag: "hosts",
		summary: "Close hosts to new virtual machines"},
		func(ctx context.Context, who farm.Identity, in *hostsWithReason) (*hostList, error) {
			return answerHosts(a.server.Hosts.Close(ctx, who, in.Host, reasonOf(in.Body)))
		})
	handle(a, route{method: "POST", path: "/v1/hosts:drain", id: "drain-hosts", tag: "hosts",
		summary: "Empty hosts: no new virtual machines, and those that run at the deadline are stopped"},
		func(ctx context.Context, who farm.Identity, in *struct {
			HostChoice
			Body *fleet.DrainRequest
		}) (*hostList, error) {
			return answerHosts(a.server.Hosts.Drain(ctx, who, in.Host, drainOrder(in.Body)))
		})
	handle(a, route{method: "POST", path: "/v1/hosts/{host}/fence", id: "fence-host", tag: "hosts",
		summary: "Vouch that nothing of a host runs any more",
		about: "Its virtual machines are lost then, and may be made elsewhere. Whoever says so of a host that runs " +
			"makes them run twice."}, func(ctx context.Context, who farm.Identity, in *struct {
		HostRef
		Seen
		Body *fleet.Reason
	}) (*one[fleet.Host], error) {
		return answerHost(a.server.Hosts.Fence(ctx, who, in.Host, in.seen, reasonOf(in.Body)))
	})
	handle(a, route{method: "POST", path: "/v1/hosts/{host}/evict", id: "evict-vms", tag: "hosts",
		summary: "Delete virtual machines of a host that the server does not know",
		about: "Those that get-host lists as orphans: their rows ended while the host was away. They are named by " +
			"ID or name, and gone with all that their disks hold when the host has deleted them."},
		func(ctx context.Context, who farm.Identity, in *struct {
			HostRef
			Seen
			Body fleet.Eviction
		}) (*one[fleet.Host], error) {
			return answerHost(a.server.Hosts.EvictVMs(ctx, who, in.Host, in.seen, in.Body.VMs))
		})
	handle(a, route{method: "DELETE", path: "/v1/hosts/{host}", id: "forget-host", tag: "hosts",
		status: http.StatusNoContent, summary: "Take a host that has no virtual machines out of the fleet"},
		func(ctx context.Context, who farm.Identity, in *struct {
			HostRef
			Seen
		}) (*nothing, error) {
			return &nothing{}, a.server.Hosts.Forget(ctx, who, in.Host, in.seen)
		})
	a.joinTokenRoutes()
}

func labelOrder(u fleet.HostUpdate) server.LabelOrder {
	o := server.LabelOrder{Set: map[string]string{}}
	for key, value := range u.Labels {
		if value == "" {
			o.Remove = append(o.Remove, key)
			continue
		}
		o.Set[key] = value
	}
	return o
}

func (a *API) joinTokenRoutes() {
	handle(a, route{method: "GET", path: "/v1/join-tokens", id: "list-join-tokens", whole: true, tag: "hosts",
		summary: "List join tokens, without their secrets"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.JoinToken]], error) {
			return listOf(ctx, a, in.Paging, joinTokenView, func(t fleet.JoinToken) string { return t.ID },
				func() ([]farm.JoinToken, error) { return a.server.Links.JoinTokens(ctx, who) })
		})
	handle(a, route{method: "POST", path: "/v1/join-tokens", id: "create-join-token", tag: "hosts",
		status: http.StatusCreated, summary: "Make a token by which hosts enrol",
		about: "Its secret is in this answer, and nowhere else ever after."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Once
			Body fleet.JoinTokenRequest
		}) (*one[fleet.JoinToken], error) {
			b := in.Body
			if b.Valid < 0 || b.Valid > maxValid.Seconds() {
				return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
					Message: "body.valid_seconds: a join token is valid for a second to 30 days",
					Hint:    "leave it out for an hour"}
			}
			token, text, err := a.server.Links.CreateJoinToken(ctx, who,
				hostlink.JoinOrder{Cell: b.Cell, Name: b.Name, Labels: b.Labels,
					Valid: time.Duration(b.Valid * float64(time.Second)), Count: cmp.Or(b.Count, 1), Once: in.Key})
			if err != nil {
				return nil, err
			}
			out := joinTokenView(token)
			out.Secret = text
			return oneOf(out, 0), nil
		})
	handle(a, route{method: "DELETE", path: "/v1/join-tokens/{token}", id: "delete-join-token", tag: "hosts",
		status: http.StatusNoContent, summary: "Take a join token back",
		about: "No more hosts enrol with it. Those that did stay."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Token string `path:"token" maxLength:"100" doc:"its ID"`
		}) (*nothing, error) {
			return &nothing{}, a.server.Links.DeleteJoinToken(ctx, who, in.Token)
		})
}

// maxValid bounds how long a join token is valid.
const maxValid = 30 * 24 * time.Hour

func joinTokenView(t farm.JoinToken) fleet.JoinToken {
	return fleet.JoinToken{ID: t.ID, Cell: t.Cell, Name: t.Name, Labels: t.Labels, By: t.By, Expires: t.Expires.UTC(),
		Count: cmp.Or(t.Count, 1), Uses: t.Uses, Used: timeOrNil(t.Used), Host: t.Host}
}

// FindingChoice chooses hosts, and findings.
type FindingChoice struct {
	Cell     string `query:"cell" maxLength:"100"`
	Kind     string `query:"kind" maxLength:"512" doc:"type of hardware, as amd-epyc-7302-2s"`
	Severity string `query:"severity" enum:"fault,warning,advice"`
	Rule     string `query:"rule" maxLength:"512"`
}

func findingsView(found server.FleetAudit) fleet.Findings {
	out := fleet.Findings{Hosts: found.Hosts, Unknown: found.Unknown, Clean: found.Clean, Rules: []fleet.RuleFindings{}}
	for _, r := range found.Rules {
		rule := fleet.RuleFindings{Rule: r.Rule, Severity: r.Severity, Places: r.Places}
		for _, k := range r.Kinds {
			rule.Kinds = append(rule.Kinds, fleet.KindFindings(k))
		}
		for _, h := range r.On {
			rule.Hosts = append(rule.Hosts, h.Name)
		}
		out.Rules = append(out.Rules, rule)
	}
	if !found.Drift.Since.IsZero() {
		out.Drift = driftView(found.Drift)
	}
	return out
}

func driftView(d server.AuditDrift) *fleet.FindingsDrift {
	out := &fleet.FindingsDrift{Since: d.Since, Rules: []fleet.RuleDrift{}, Hosts: []fleet.HostDrift{}, More: d.More,
		First: d.First}
	if !d.Cut.IsZero() {
		out.Cut = &d.Cut
	}
	for _, r := range d.Rules {
		out.Rules = append(out.Rules, fleet.RuleDrift(r))
	}
	for _, h := range d.Hosts {
		out.Hosts = append(out.Hosts, fleet.HostDrift{Host: h.Name, Cell: h.Cell, Kind: h.Kind, Rule: h.Rule,
			Came: h.Came, At: h.At, Updated: h.Updated})
	}
	return out
}
