package agent

import (
	"os"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/farm"
)

// steps returns how the caller of a Slurm job is to start steps of it for the job's script in the VM; nil for every
// other job.
func (j *job) steps() *api.Steps {
	if j.caller.Batch.System != farm.Slurm || j.vm.key == "" {
		return nil
	}
	return &api.Steps{Job: j.caller.Batch.Job, Conf: allotment.SlurmConf(os.DirFS("/"), j.caller.PID)}
}
