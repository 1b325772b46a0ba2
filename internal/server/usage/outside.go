package usage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// Outside are the records that count for nobody and that the caller may see, in the order of their IDs, behind one:
// those of cells in which one has a role, or all. Whose they would be is the word of their hosts alone.
func (s *Usage) Outside(ctx context.Context, who farm.Identity, q fleet.OutsideQuery, after string,
	limit int) (page fleet.Page[api.Usage], err error) {
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) error {
		page = fleet.Page[api.Usage]{Items: []api.Usage{}}
		see := sight(c)
		see.Owner, see.Projects = "", nil
		if !see.All && len(see.Cells) == 0 {
			return c.May(policy.Target{Name: "usage that counts for nobody"}) // which says why
		}
		rows, err := c.UsageOutside(store.UsageOutside{Host: q.Host, Why: q.Why, From: q.From, To: q.To, Sees: see,
			After: after, Limit: limit})
		for _, r := range rows {
			var u api.Usage
			if err := json.Unmarshal(r.Body, &u); err != nil {
				return err
			}
			if u.Outside == "" {
				u.Outside = r.Why
			}
			page.Items = append(page.Items, u)
		}
		if len(rows) == limit {
			page.Next = page.Items[limit-1].ID
		}
		return err
	})
	return page, err
}

// CodeBadPeriod is of a period that has no end behind its beginning.
const CodeBadPeriod farm.Code = "bad-period"

// Withdraw takes records of a host back, those that ended in a period or that came in it: they count for nobody from
// then on, also where the host brings them again. Records of months that are closed go too. Once more it finds none.
func (s *Usage) Withdraw(ctx context.Context, who farm.Identity,
	r fleet.UsageWithdrawal) (out fleet.UsageWithdrawn, err error) {
	if !r.From.Before(r.To) || r.From.Year() < 1970 || r.To.Year() > 9999 {
		return out, &farm.Error{Kind: farm.Invalid, Code: CodeBadPeriod,
			Message: "the period from " + when(r.From) + " to " + when(r.To) + " is empty",
			Hint:    "name a beginning, and an end behind it"}
	}
	do := func(c *action.Call) error {
		out, err = s.withdraw(c, r)
		return err
	}
	if r.DryRun {
		return out, s.Actions.Look(ctx, who, policy.WithdrawUsage, do)
	}
	_, err = s.Actions.Change(ctx, who, policy.WithdrawUsage, do)
	return out, err
}

func (s *Usage) withdraw(c *action.Call, r fleet.UsageWithdrawal) (out fleet.UsageWithdrawn, err error) {
	if err := c.May(policy.Target{Name: "host " + farm.Clean(r.Host, 100)}); err != nil {
		return out, err
	}
	closed, err := closedMonth(c.Tx)
	if err != nil {
		return out, err
	}
	p := store.HostPeriod{Host: r.Host, From: r.From, To: r.To, Came: r.Came}
	sum, err := c.SumPeriod(p, closed.Month)
	if err != nil {
		return out, err
	}
	out = fleet.UsageWithdrawn{UsageWithdrawal: r, Records: sum.Records, Closed: sum.Closed,
		CoreHours: sum.CoreTime / hour}
	if sum.Records == 0 {
		return out, s.known(c, r.Host)
	}
	if r.DryRun {
		return out, nil
	}
	if err := c.Tx.Withdraw(p, outWithdrawn); err != nil {
		return out, err
	}
	return out, c.Did(withdrawn(out))
}

// known refuses a name that is no host's, of which there are no records either.
func (s *Usage) known(c *action.Call, name string) error {
	_, err := c.HostNamed(name)
	if !action.Missing(err) {
		return err
	}
	n, err := c.CountOutside(name, "")
	if err == nil && n == 0 {
		err = action.NoHost(name)
	}
	return err
}

// withdrawn is what the audit log has of it.
func withdrawn(w fleet.UsageWithdrawn) string {
	how := "ended"
	if w.Came {
		how = "came"
	}
	return fmt.Sprintf("%s of %.2f core hours that %s from %s to %s, %d of them of closed months",
		farm.Count(w.Records, "record"), w.CoreHours, how, when(w.From), when(w.To), w.Closed)
}
