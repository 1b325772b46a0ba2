package lsf

import (
	"context"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Kind is LSF.
var Kind = batch.Kind{
	Name: farm.LSF,
	Open: func(s batch.Settings) (batch.System, error) { return open(s), nil },
	Lookup: func(ctx context.Context, a farm.Allotment, _ int) (farm.Allotment, error) {
		return open(batch.Settings{}).Lookup(ctx, a)
	},
	Find:   allotment.LSF,
	Limits: masterLimits,
	Holds:  1,
	// REQUEUE_EXIT_VALUES=199 and MAX_JOB_REQUEUE of the queue.
	Wrapper: &batch.Wrapper{Requeue: batch.ExitNotStarted, Command: command},
}

// open returns where LSF is: its installation has no usual place.
func open(s batch.Settings) *Driver {
	return NewDriver(DriverOptions{Bin: s.Value("LSF_BINDIR"),
		Env: s.Env("LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR"), Hold: s.Queue()}, program.Start)
}

// command: LSF hands a whole command line over as one word where its JOB_STARTER quotes it.
func command(argv []string) []string {
	if len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n;&|<>()$`\\\"'*?[#~=%") {
		return []string{"/bin/sh", "-c", argv[0]}
	}
	return argv
}
