package cli

import (
	"context"
	"os"
	"time"

	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/farm"
)

// lookupJob asks a batch system, as root, what the kernel does not know of a job on this host: the agent's policy may depend on it. SLURM_CONF
// is the agent's own, from whoever started it.
func lookupJob(ctx context.Context, a farm.Allotment) (account, queue string, ends time.Time, err error) {
	if a.System != farm.Slurm {
		return "", "", time.Time{}, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeUnknownQueue,
			Message: "this agent has no way to ask " + string(a.System) + " about a job's account and queue"}
	}
	var env []string
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		env = []string{"SLURM_CONF=" + conf}
	}
	told, err := slurm.NewDriver(slurm.DriverOptions{Env: env}, program.Start).Lookup(ctx, a)
	return told.Account, told.Queue, told.Ends, err
}
