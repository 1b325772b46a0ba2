package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/usage"
)

// filter is a query as the store takes it, and no more than the caller may see.
func (s *Usage) filter(c *action.Call, q fleet.UsageQuery) (f store.UsageFilter, err error) {
	f = store.UsageFilter{Owner: q.User, Project: q.Project, Cell: q.Cell, Kind: q.Kind}
	if f.From, f.To, err = usage.Months(q.From, q.To, c.Now); err != nil {
		return f, err
	}
	f.Sees, err = s.sees(c)
	return f, err
}

// sees is whose records the caller may see, and how far; it refuses who may see none.
func (s *Usage) sees(c *action.Call) (store.UsageSight, error) {
	see := sight(c)
	if !s.SameNames {
		see.OwnKind = api.UsageVM // of whose owner the server knows, not by the name of an account
	}
	if !see.All && see.Owner == "" && len(see.Projects)+len(see.Cells) == 0 {
		return see, c.May(policy.Target{Name: "usage"}) // which says why
	}
	return see, nil
}

// sight is whose records the caller may see: all, or one's own and those of projects and cells in which one has a role.
func sight(c *action.Call) (s store.UsageSight) {
	if c.Allowed(policy.ReadUsage, policy.Target{}) {
		return store.UsageSight{All: true}
	}
	if me := c.Who.User; me != "" && c.Allowed(policy.ReadUsage, policy.Target{Owner: me}) {
		s.Owner = me
	}
	projects := slices.Clone(c.Who.Projects) // of a token
	for _, g := range c.Grants {
		projects = append(projects, g.Project)
		if g.Cell != "" && c.Allowed(policy.ReadUsage, policy.Target{Cell: g.Cell}) {
			s.Cells = append(s.Cells, g.Cell)
		}
	}
	slices.Sort(projects)
	for _, p := range slices.Compact(projects) {
		if p != "" && c.Allowed(policy.ReadUsage, policy.Target{Project: p}) {
			s.Projects = append(s.Projects, p)
		}
	}
	return s
}

// Sum adds up what the caller may see.
func (s *Usage) Sum(ctx context.Context, who farm.Identity, q fleet.UsageQuery) (out fleet.UsageSummary, err error) {
	by := cmp.Or(q.By, "project")
	if !slices.Contains(store.UsageKeys(), by) {
		return out, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("usage is not added up by %q", by),
			Hint:    "by one of " + strings.Join(store.UsageKeys(), ", ")}
	}
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) error {
		f, err := s.filter(c, q)
		if err != nil {
			return err
		}
		closed, err := closedMonth(c.Tx)
		if err != nil {
			return err
		}
		scores, err := c.Scores()
		if err != nil {
			return err
		}
		sums, err := c.UsageSums(by, f)
		out = fleet.UsageSummary{By: by, From: f.From, To: f.To, Closed: closed.Month, Lines: lines(sums, scores)}
		return err
	})
	return out, err
}

const hour = 3600.0 // seconds

// lines are sums with all hardware, sizes and states of tuning of a key together, and each part's score where the site
// has one.
func lines(sums []store.UsageSum, scores []farm.Score) []fleet.UsageLine {
	out := []fleet.UsageLine{}
	for _, s := range sums {
		if n := len(out); n == 0 || out[n-1].Key != s.Key {
			out = append(out, fleet.UsageLine{Key: s.Key})
		}
		l := &out[len(out)-1]
		l.Records, l.Late = l.Records+s.Records, l.Late+s.Late
		l.WallHours += s.Wall / hour
		l.CoreHours += s.CoreTime / hour
		l.CPUHours += s.CPU / hour
		l.CPUUnknown += s.CPUUnknown
		l.CPUUnknownHours += s.CoreTimeUnknown / hour
		l.JobHours += s.JobCPU / hour
		score, ok := usage.ScoreOf(scores, s.Hardware, s.Cores, s.Tuning)
		if !ok {
			continue
		}
		i := slices.IndexFunc(l.Scored, func(o fleet.UsageScored) bool { return o.Unit == score.Unit })
		if i < 0 {
			i, l.Scored = len(l.Scored), append(l.Scored, fleet.UsageScored{Unit: score.Unit})
		}
		l.Scored[i].CoreHours += s.CoreTime / hour
		l.Scored[i].ScoreHours += s.CoreTime / hour * score.Core
	}
	return out
}

// Records are those that the caller may see, in the order of their IDs, behind one.
func (s *Usage) Records(ctx context.Context, who farm.Identity, q fleet.UsageQuery, after string,
	limit int) (page fleet.Page[api.Usage], err error) {
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) error {
		page = fleet.Page[api.Usage]{Items: []api.Usage{}}
		f, err := s.filter(c, q)
		if err != nil {
			return err
		}
		bodies, err := c.Usage(f, after, limit)
		if err != nil {
			return err
		}
		scores, err := c.Scores()
		if err != nil {
			return err
		}
		for _, body := range bodies {
			var u api.Usage
			if err := json.Unmarshal(body, &u); err != nil {
				return err
			}
			if score, ok := usage.ScoreOf(scores, u.Hardware, u.Cores, u.Tuning); ok {
				u.Score, u.ScoreUnit = score.Core, score.Unit
			}
			page.Items = append(page.Items, u)
		}
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].ID
		}
		return nil
	})
	return page, err
}

// maskAtOnce is how many records one transaction masks: all writers wait for it.
const maskAtOnce = 500

// Prune lets go what is too old: persons, and then records. It is a loop of the server that leads.
func (s *Usage) Prune(ctx context.Context, epoch int64) error {
	for again := s.Mask > 0; again; {
		err := s.Actions.ByItself(ctx, epoch, policy.CloseUsage, func(c *action.Call) error {
			bodies, err := c.UsageToMask(c.Now.Add(-s.Mask), maskAtOnce)
			again = len(bodies) == maskAtOnce
			for _, body := range bodies {
				if err == nil {
					err = mask(c, body)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for again := s.Keep > 0; again; {
		err := s.Actions.ByItself(ctx, epoch, policy.CloseUsage, func(c *action.Call) error {
			old := c.Now.Add(-s.Keep)
			records, err := c.PruneUsage(old)
			places, other := c.PrunePlaces(old)
			hours, third := c.PruneUsageHours(old.Format(dayLayout))
			again = records || places || hours
			return errors.Join(err, other, third)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func mask(c *action.Call, body []byte) error {
	var u api.Usage
	if err := json.Unmarshal(body, &u); err != nil {
		return err
	}
	u = usage.Masked(u)
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return c.MaskUsage(u.ID, u.User, text)
}

// DaysOf is a number of days.
func DaysOf(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
