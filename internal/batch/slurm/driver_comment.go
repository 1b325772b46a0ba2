package slurm

import (
	"context"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Comment writes the AdminComment of a job, which sacct shows: in slurmdbd, for slurmctld takes none of a job that has
// ended. The user's own comment is left alone. sacctmgr says that it changed nothing, and fails then or not, by
// release.
func (d *Driver) Comment(ctx context.Context, job, text string) error {
	out, err := d.command(ctx, "sacctmgr", "--immediate", "modify", "job", "where", "jobid="+job, "set",
		"admincomment="+text)
	if err == nil && strings.Contains(out, "Modified jobs") {
		return nil
	}
	if farm.IsKind(err, farm.Unavailable) && !program.Said(err, "didn't affect anything") {
		return err
	}
	return &farm.Error{Kind: farm.NotFound, Code: batch.CodeNoBatchJob, Err: err,
		Message: "slurmdbd has no such job, or takes no comment from this host",
		Hint:    "see `sacctmgr modify job where jobid=NUMBER set admincomment=x` as root of this host"}
}
