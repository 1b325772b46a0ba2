package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// lookupJob asks a batch system, as root, what the kernel does not know of a job on this host. A host without the
// system's commands has no way to ask.
func lookupJob(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error) {
	kind, _ := systems.Find(a.System)
	if kind.Lookup == nil {
		return a, fmt.Errorf("this agent has no way to ask %s about a job: %w", a.System, errors.ErrUnsupported)
	}
	told, err := kind.Lookup(ctx, a, pid)
	if program.Missing(err) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return told, err
}
