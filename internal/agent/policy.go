package agent

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/agent/pools"
	"github.com/grange-project/grange/internal/agent/services"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// decide applies the site's policy to a caller and what it wishes.
func (a requests) decide(c Caller, r *api.JobRequest) (policy.Decision, error) {
	rules, wish := a.config().Policy, jobrequest.Wish(r)
	_, wish.SiteNetwork = a.config().Networks[r.Network]
	if len(rules) == 0 && !wish.SiteNetwork && r.Pool == "" {
		return policy.Decision{Image: r.Image, Shape: r.Shape, Network: r.Network}, nil
	}
	rules, err := pools.Rules(a.config().Pools, r.Pool, rules)
	if err != nil {
		return policy.Decision{}, err
	}
	who, err := a.who(rules, c)
	if err == nil {
		err = pools.May(a.config().Pools, r.Pool, who)
	}
	if err != nil {
		return policy.Decision{}, err
	}
	return policy.Decide(rules, who, wish)
}

// services are those of the host that a caller's VM may use.
func (a requests) services(c Caller) ([]string, error) {
	return services.For(a.config().Services, func(r []policy.Rule) (policy.Who, error) { return a.who(r, c) })
}

// who is the caller as rules see it. Rules fail closed: where one looks at a name, an account or a queue that nobody
// knows, the job is not started.
func (a requests) who(rules []policy.Rule, c Caller) (policy.Who, error) {
	known, err := a.namesOf(c)
	w := known.Who()
	w.System, w.Account, w.Queue = c.Batch.System, c.Batch.Account, c.Batch.Queue
	if err == nil {
		err = known.Satisfy(rules, c.Batch.Group)
	}
	if err != nil {
		return w, err
	}
	if c.Batch.System == "" || !policy.NeedsQueue(rules) || w.Account != "" && w.Queue != "" {
		return w, nil
	}
	told, err := a.lookups.Of(a.ctx, c.Batch, c.PID)
	if err != nil {
		return w, &farm.Error{Kind: farm.Unavailable, Code: CodeUnknownQueue, Err: err,
			Message: "a rule of this host's policy looks at account or queue, and those of job " + c.Batch.Job +
				" cannot be determined", Hint: "see whether the batch system answers on this host"}
	}
	if w.Account == "" {
		w.Account = told.Account
	}
	if w.Queue == "" {
		w.Queue = told.Queue
	}
	return w, nil
}
