package uplink

import (
	"context"
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/sleep"
)

// Jobs is what a link needs of the jobs of its host.
type Jobs interface {
	// Jobs are those that have not ended.
	Jobs() []fleet.Job
}

// The times of jobs. People look at them, and nothing is decided by them: the link does not end for them.
const (
	jobsEvery = 2 * time.Second
	jobsRetry = 30 * time.Second
)

// reportJobs reports which jobs have not ended, at first and each time that they are others, until ctx ends. An older
// server is told of none.
func (s *session) reportJobs(ctx context.Context) {
	if s.jobs == nil {
		return
	}
	var has [sha256.Size]byte // what the server has
	said := ""
	for pause := time.Duration(0); ctx.Err() == nil; _ = sleep.For(ctx, pause) {
		pause = jobsEvery
		if s.caller.capability() < fleet.CapabilityJobs {
			continue
		}
		now := fleet.HostJobs{Jobs: s.jobs.Jobs()}
		sum := sumOf(now)
		if sum == has {
			continue
		}
		if _, err := s.ask(ctx, answerTime, http.MethodPost, fleet.RouteJobs, now, nil); err == nil {
			has, said = sum, ""
		} else if pause = jitter(jobsRetry); ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("jobs are not reported to the server; tried again", "error", err)
		}
	}
}
