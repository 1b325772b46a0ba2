package agent

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/farm"
)

// judge holds the request of a caller who comes again, to an agent that has only the job's record, against what was
// allowed. Records of earlier releases have no digest: of those the request is decided anew.
func (j *job) judge(r *api.JobRequest, c Caller) error {
	if j.record.Judged != "" {
		if jobrequest.Digest(r) == j.record.Judged {
			return nil
		}
		return &farm.Error{Kind: farm.Conflict, Code: CodeJobDiffers,
			Message: "job " + j.id + " is known here with another request",
			Hint:    "a job that was asked for cannot be changed; ask for a new one, with an ID of its own"}
	}
	if err := c.belongsTo(farm.BatchSystem(r.Batch)); err != nil {
		return err
	}
	if err := c.mayKeep(r); err != nil {
		return err
	}
	if _, err := j.agent.requests().decide(c, r); err != nil {
		return err
	}
	return jobrequest.CheckScript(r, j.record.Shape.Memory)
}
