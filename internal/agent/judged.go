package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/jobrequest"
	"github.com/grange-project/grange/internal/farm"
)

// digestOf is what a record keeps of a request that was allowed: all of it, in a form that no secret can be read from,
// but for what may change when its caller comes again.
func digestOf(r *api.JobRequest) string {
	same := *r
	same.Started, same.NoWait, same.Terminal = false, false, nil
	text, err := json.Marshal(same)
	if err != nil {
		return "" // no such request came in as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// judge holds the request of a caller who comes again, to an agent that has only the job's record, against what was
// allowed. Records of earlier releases have no digest: of those the request is decided anew.
func (j *job) judge(r *api.JobRequest, c Caller) error {
	if j.record.Judged != "" {
		if digestOf(r) == j.record.Judged {
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
