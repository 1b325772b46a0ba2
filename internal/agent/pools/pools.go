// Package pools is about VMs that people work in: which pools there are for whom, how many VMs each may have, and when
// one of them ends, for it is not used or has lasted as long as it may.
package pools

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Codes of errors; see docs/errors.md.
const (
	CodeNoPool   farm.Code = "no-pool"
	CodePoolFull farm.Code = "pool-full"
	CodePoolIdle farm.Code = "pool-idle"
	CodePoolTime farm.Code = "pool-time"
)

// Rules are those of a pool's VMs, the pool's own before the site's; "" is no pool.
func Rules(all []config.Pool, name string, site []policy.Rule) ([]policy.Rule, error) {
	if name == "" {
		return site, nil
	}
	if p, ok := find(all, name); ok {
		return append([]policy.Rule{p.Rule}, site...), nil
	}
	return nil, noPool(name)
}

// May reports whether somebody may have a VM of a pool. One that is not for them is as one that is not there.
func May(all []config.Pool, name string, who policy.Who) error {
	p, ok := find(all, name)
	switch {
	case name == "" || ok && p.Rule.Matches(who):
		return nil
	case !ok || !forUser(p, who):
		return noPool(name)
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodePolicy,
		Message: fmt.Sprintf("VMs of pool %q belong to %s, and the caller to %s", name, jobsOf(p.Batch),
			jobsOf(who.System)),
		Hint: "use `grange shell --pool " + name + "` outside of batch jobs; it asks whoever gives the pool's VMs"}
}

func find(all []config.Pool, name string) (config.Pool, bool) {
	i := slices.IndexFunc(all, func(p config.Pool) bool { return p.Name == name })
	if i < 0 {
		return config.Pool{}, false
	}
	return all[i], true
}

func noPool(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoPool, Message: fmt.Sprintf("no pool %q here is for you", name),
		Hint: "`grange pool list` shows those that you may use"}
}

func jobsOf(system farm.BatchSystem) string {
	if system == "" {
		return "no batch job"
	}
	return "a job of " + string(system)
}

// forUser reports whether a pool is for somebody, whoever's job they call from.
func forUser(p config.Pool, who policy.Who) bool {
	who.System = p.Batch
	return p.Rule.Matches(who)
}

// HasHome reports whether VMs of a pool have their user's home directory.
func HasHome(all []config.Pool, name string) bool {
	p, _ := find(all, name)
	return p.Home
}

// View is the pools that somebody may use, with how many VMs of each there are; who finds out what a rule needs to know
// of them.
func View(all []config.Pool, who func([]policy.Rule) (policy.Who, error), vms map[string][]uint32) ([]api.Pool, error) {
	out := []api.Pool{}
	for _, p := range all {
		w, err := who([]policy.Rule{p.Rule})
		if err != nil {
			return nil, err
		}
		if forUser(p, w) {
			shown := p.View()
			shown.VMs = len(vms[p.Name])
			out = append(out, shown)
		}
	}
	return out, nil
}

// Room refuses one more VM of a pool that has as many as it may. users are those whose VMs the others are.
func Room(all []config.Pool, name string, user uint32, users []uint32) error {
	p, _ := find(all, name) // one that was taken out meanwhile says nothing
	mine := 0
	for _, u := range users {
		if u == user {
			mine++
		}
	}
	full := func(whose string, most int, hint string) error {
		return &farm.Error{Kind: farm.NoCapacity, Code: CodePoolFull, Hint: hint,
			Message: fmt.Sprintf("pool %q has %s%s on this host, and may have no more", name, whose,
				farm.Count(most, "VM"))}
	}
	switch {
	case p.PerUser > 0 && mine >= p.PerUser:
		return full("your ", mine, "go on with what you have: `grange shell list`, `grange shell attach`; or end it")
	case p.AtOnce > 0 && len(users) >= p.AtOnce:
		return full("", len(users), "try again later, or take another pool: `grange pool list`")
	}
	return nil
}
