package apiserver

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/usage"
	outcome "github.com/grange-project/grange/internal/usage"
)

// jobRoutes are of jobs and workers, before and after their end.
type jobRoutes struct{ *API }

func (a jobRoutes) register() {
	handle(a.API, route{method: "GET", path: "/v1/jobs", id: "list-jobs", whole: true, tag: "usage",
		summary: "Jobs that have ended, the newest first: their records of usage",
		about: "Of what the caller may see, as sum-usage. With outcome a page may have fewer items than its limit, " +
			"or none, and more follow; the last one has no next."},
		func(ctx context.Context, who farm.Identity, in *struct {
			JobChoice
			Paging
		}) (*one[fleet.Page[api.Usage]], error) {
			f := usage.JobFilter{Since: in.Since, User: in.User, Project: in.Project, Cell: in.Cell, Host: in.Host,
				Kind: in.Kind, Outcome: outcome.Outcome(in.Outcome), After: in.After, Limit: in.Limit}
			return answered(a.server.Usage.Jobs(ctx, who, f))
		})
	handle(a.API, route{method: "GET", path: "/v1/jobs/active", id: "list-active-jobs", whole: true, tag: "usage",
		summary: "Jobs and workers that have not ended, the newest first, as their hosts reported them last",
		about: "Of what the caller may see, as sum-usage: what one waits for, what the start of its VM took, phase by " +
			"phase, and whether its host is silent."},
		func(ctx context.Context, who farm.Identity, in *struct {
			ActiveJobChoice
			Paging
		}) (*one[fleet.Page[fleet.Job]], error) {
			return answered(a.server.Usage.Active(ctx, who, fleet.JobQuery{State: in.State, User: in.User,
				Project: in.Project, Cell: in.Cell, Host: in.Host, After: in.After, Limit: in.Limit}))
		})
	handle(a.API, route{method: "GET", path: "/v1/jobs/{job}", id: "get-job", tag: "usage",
		summary: "One job or worker, by its ID or that of its record of usage",
		about:   "Of one that has ended, with its record. A job that never had a VM leaves nothing."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Job string `path:"job" maxLength:"36"`
		}) (*one[fleet.Job], error) {
			out, err := a.server.Usage.Job(ctx, who, in.Job)
			if err != nil {
				return nil, err
			}
			return oneOf(out, 0), nil
		})
	handle(a.API, route{method: "GET", path: "/v1/slowhosts", id: "list-slow-hosts", whole: true, tag: "usage",
		summary: "Hosts on which guests boot more slowly than on others of their kind, the slowest first",
		about: "By the records of jobs and workers that ended since a time, of what the caller may see. Compared is the " +
			"same image with as many CPUs on the same type of hardware."},
		func(ctx context.Context, who farm.Identity, in *struct {
			Cell  string    `query:"cell" maxLength:"100"`
			Since time.Time `query:"since" required:"true"`
		}) (*one[fleet.SlowHosts], error) {
			return answered(a.server.Usage.SlowHosts(ctx, who, in.Cell, in.Since))
		})
	hostRoute(a.API, route{method: "POST", path: fleet.RouteJobs, id: "report-jobs", whose: forHosts, tag: "Link to hosts",
		summary: "Report which jobs of a host have not ended", about: "All of them each time."},
		reflect.TypeFor[fleet.HostJobs](), nil, a.hosts.jobs)
}

// ActiveJobChoice chooses jobs that have not ended.
type ActiveJobChoice struct {
	State   string `query:"state" enum:"waiting,starting,running,suspended,unresponsive,kept"`
	User    string `query:"user" maxLength:"100" doc:"as hosts know them"`
	Project string `query:"project" maxLength:"100"`
	Cell    string `query:"cell" maxLength:"100"`
	Host    string `query:"host" maxLength:"100" doc:"name"`
}

// JobChoice chooses jobs that have ended.
type JobChoice struct {
	Since   time.Time `query:"since" doc:"they ended then or later; empty: at any time"`
	User    string    `query:"user" maxLength:"100"`
	Project string    `query:"project" maxLength:"100"`
	Cell    string    `query:"cell" maxLength:"100"`
	Host    string    `query:"host" maxLength:"100" doc:"name"`
	Kind    string    `query:"kind" enum:"job,worker,metal"`
	Outcome string    `query:"outcome" enum:"done,failed,cancelled,lost"`
}

func (l hostLinks) jobs(w http.ResponseWriter, r *http.Request) {
	in, err := read[fleet.HostJobs](r)
	if err == nil {
		err = l.api.server.Usage.TakeJobs(r.Context(), callerOf(r.Context()), in)
	}
	if err != nil {
		l.answerHost(w, r, nil, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
