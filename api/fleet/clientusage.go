package fleet

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/grange-project/grange/api"
)

// UsageClient reads what VMs have used.
type UsageClient struct{ c *Client }

// UsageQuery chooses records. What is empty chooses nothing.
type UsageQuery struct {
	From, To                  string // months; "": this one
	By                        string // of Sum
	User, Project, Cell, Kind string
}

func (q UsageQuery) values() url.Values {
	return chosen(map[string]string{"from": q.From, "to": q.To, "by": q.By, "user": q.User, "project": q.Project,
		"cell": q.Cell, "kind": q.Kind})
}

// Sum adds up.
func (u UsageClient) Sum(ctx context.Context, q UsageQuery) (UsageSummary, error) {
	return call[UsageSummary](ctx, u.c, request{method: "GET", path: "/v1/usage", query: q.values()})
}

// Each calls do with all records that the query chooses, a page at a time.
func (u UsageClient) Each(ctx context.Context, q UsageQuery, do func(api.Usage) error) error {
	query := q.values()
	query.Del("by")
	return u.pages(ctx, "/v1/usage/records", query, do)
}

// pages calls do with all records of a list.
func (u UsageClient) pages(ctx context.Context, path string, query url.Values, do func(api.Usage) error) error {
	query.Set("limit", strconv.Itoa(1000))
	for {
		page, err := call[Page[api.Usage]](ctx, u.c, request{method: "GET", path: path, query: query})
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			if err := do(r); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		query.Set("after", page.Next)
	}
}

// EachOutside calls do with all records that count for nobody and that the query chooses, a page at a time.
func (u UsageClient) EachOutside(ctx context.Context, q OutsideQuery, do func(api.Usage) error) error {
	query := chosen(map[string]string{"host": q.Host, "why": q.Why})
	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	return u.pages(ctx, "/v1/usage/outside", query, do)
}

// Withdraw takes records of a host back.
func (u UsageClient) Withdraw(ctx context.Context, r UsageWithdrawal) (UsageWithdrawn, error) {
	return call[UsageWithdrawn](ctx, u.c, request{method: "POST", path: "/v1/usage/withdraw", body: r})
}

// Close closes a month and those before it.
func (u UsageClient) Close(ctx context.Context, month string) (UsageClosed, error) {
	return call[UsageClosed](ctx, u.c, request{method: "POST", path: "/v1/usage/months/" + url.PathEscape(month) + "/close"})
}

// History is what series of figures were like, back to a time ago: names, or beginnings with a * behind them.
func (c *Client) History(ctx context.Context, since time.Duration, series ...string) (History, error) {
	return call[History](ctx, c, request{method: "GET", path: "/v1/history",
		query: url.Values{"since": {since.String()}, "series": series}})
}
