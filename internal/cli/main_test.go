package cli

import (
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/cli/app"
)

// TestBatchNonsense: a wrapper that is told nonsense, by a plug-in of another version perhaps, ends as one that runs no
// job.
func TestBatchNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"exec", "--batch", "slurm", "--of-tomorrow", "--", "true"}, {"exec", "--batch", "slurm"},
		{"exec", "--batch", "tomorrows", "--", "true"},
		{"exec", "--batch", "slurm", "--wait", "--no-wait", "--", "true"},
	} {
		if got := Main(args); got != batch.ExitNever {
			t.Errorf("%q ends with status %d, want %d", args, got, batch.ExitNever)
		}
	}
	if got := Main([]string{"exec", "--of-tomorrow", "--", "true"}); got != app.ExitUsage {
		t.Errorf("a senseless command line of somebody else ends with status %d, want %d", got, app.ExitUsage)
	}
}
