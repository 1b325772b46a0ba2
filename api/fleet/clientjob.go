package fleet

import (
	"context"
	"net/url"
	"time"
)

// JobClient reads which VMs of jobs and workers there are, and were.
type JobClient struct{ client *Client }

// List returns jobs that have not ended and that a query chooses, at most as many as limit; 0: all.
func (c JobClient) List(ctx context.Context, q JobQuery, limit int) ([]Job, error) {
	query := chosen(map[string]string{"state": q.State, "user": q.User, "project": q.Project, "cell": q.Cell,
		"host": q.Host, "after": q.After})
	jobs, _, err := some[Job](ctx, c.client, "/v1/jobs/active", query, limit)
	return jobs, err
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
