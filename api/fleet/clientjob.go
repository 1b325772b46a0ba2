package fleet

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// JobClient reads which VMs of jobs and workers there are, and were.
type JobClient struct{ client *Client }

// List returns jobs that have not ended and that a query chooses, at most as many as limit; 0: all.
func (c JobClient) List(ctx context.Context, q JobQuery, limit int) (all []Job, err error) {
	query := chosen(map[string]string{"state": q.State, "user": q.User, "project": q.Project, "cell": q.Cell,
		"host": q.Host, "after": q.After})
	for {
		size := 1000
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		query.Set("limit", strconv.Itoa(size))
		page, err := call[Page[Job]](ctx, c.client, request{method: "GET", path: "/v1/jobs/active", query: query})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// chosen are the values of a query that are not empty.
func chosen(values map[string]string) url.Values {
	v := url.Values{}
	for key, value := range values {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

// Get returns one job, by its ID or that of its record of usage.
func (c JobClient) Get(ctx context.Context, id string) (Job, error) {
	return call[Job](ctx, c.client, request{method: "GET", path: "/v1/jobs/" + url.PathEscape(id)})
}

// Slow returns hosts on which guests boot more slowly than on others of their kind, by what has ended since a time.
func (c HostClient) Slow(ctx context.Context, cell string, since time.Time) (SlowHosts, error) {
	query := chosen(map[string]string{"cell": cell, "since": since.UTC().Format(time.RFC3339)})
	return call[SlowHosts](ctx, c.client, request{method: "GET", path: "/v1/slowhosts", query: query})
}
