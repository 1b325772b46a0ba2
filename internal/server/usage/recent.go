package usage

import (
	"cmp"
	"context"
	"encoding/json"
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

// JobKinds are the kinds of records that are of jobs: in a VM, of a worker, and without a VM.
var JobKinds = []string{api.UsageJob, api.UsageWorker, api.UsageMetal}

// JobFilter chooses jobs that have ended. Empty fields choose all.
type JobFilter struct {
	Since                           time.Time // they ended then or later
	Kind, User, Project, Cell, Host string
	Outcome                         usage.Outcome
	After                           string // Next of the page before
	Limit                           int
}

// Bounds of a page of jobs. How one ended is not in a column: so many records are read for a page at the most, and then
// there may be fewer jobs on it, with more to follow.
const (
	mostJobs    = 1000
	jobsAtOnce  = 500
	mostJobRead = 5000
)

// Jobs are those that have ended and that the caller may see, the newest first.
func (s *Usage) Jobs(ctx context.Context, who farm.Identity, f JobFilter) (page fleet.Page[api.Usage], err error) {
	q := store.UsageRecent{Since: f.Since, Kinds: JobKinds, Owner: f.User, Project: f.Project, Cell: f.Cell,
		Host: f.Host}
	if f.Kind != "" {
		q.Kinds = []string{f.Kind}
		if !slices.Contains(JobKinds, f.Kind) {
			return page, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: fmt.Sprintf("jobs have no kind %.40q", f.Kind), Hint: "one of " + strings.Join(JobKinds, ", ")}
		}
	}
	if q.Before, q.BeforeID, err = behind(f.After); err != nil {
		return page, err
	}
	if f.Limit = min(cmp.Or(f.Limit, mostJobs), mostJobs); f.Outcome == "" {
		q.Limit = f.Limit + 1 // one more says that there are more
	} else {
		q.Limit = jobsAtOnce
	}
	err = s.Actions.Look(ctx, who, policy.ReadUsage, func(c *action.Call) (err error) {
		if q.Sees, err = s.sees(c); err == nil {
			page, err = jobsOf(c.RecentUsage, q, f)
		}
		return err
	})
	return page, err
}

// jobsOf reads records until a page is full.
func jobsOf(read func(store.UsageRecent) ([][]byte, error), q store.UsageRecent,
	f JobFilter) (page fleet.Page[api.Usage], err error) {
	page.Items = []api.Usage{}
	last := ""
	for looked := 0; ; {
		bodies, err := read(q)
		if err != nil {
			return page, err
		}
		for _, body := range bodies {
			var u api.Usage
			if err := json.Unmarshal(body, &u); err != nil {
				return page, err
			}
			if len(page.Items) == f.Limit {
				page.Next = last
				return page, nil
			}
			last, q.Before, q.BeforeID = place(u.End, u.ID), u.End, u.ID
			if f.Outcome == "" || usage.OutcomeOf(u) == f.Outcome {
				page.Items = append(page.Items, u)
			}
		}
		if len(bodies) < q.Limit {
			return page, nil
		}
		if looked += len(bodies); looked >= mostJobRead {
			page.Next = last
			return page, nil
		}
	}
}

// place is where a job is in a list by time, and then by ID.
func place(at time.Time, id string) string { return at.UTC().Format(time.RFC3339Nano) + "," + id }

// behind reads it; "" is before all jobs.
func behind(place string) (at time.Time, id string, err error) {
	if place == "" {
		return at, "", nil
	}
	text, id, _ := strings.Cut(place, ",")
	if at, err = time.Parse(time.RFC3339Nano, text); err != nil || !farm.IsID(id) {
		return at, id, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
			Message: fmt.Sprintf("%.80q is not where a page of jobs has ended", place),
			Hint:    "begin with the newest ones"}
	}
	return at, id, nil
}
