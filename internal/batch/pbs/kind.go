package pbs

import (
	"path/filepath"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Kind is PBS.
var Kind = batch.Kind{
	Name: farm.PBS,
	Open: func(s batch.Settings) (batch.System, error) {
		return NewDriver(DriverOptions{Conf: s.Value("PBS_CONF_FILE"), Hold: s.Queue()}, program.Start), nil
	},
	Find:   allotment.PBS,
	Limits: masterLimits,
	Holds:  1,
	// The epilogue hook sees the status and reruns the job; PBS itself holds a job after some 20 runs.
	Wrapper: &batch.Wrapper{Requeue: batch.ExitNotStarted, ScriptOnStdin: true, Places: places},
}

func places(getenv func(string) string) []batch.Place {
	if file := getenv("PBS_NODEFILE"); filepath.IsAbs(file) {
		return []batch.Place{{Dir: filepath.Dir(file), ReadOnly: true}}
	}
	return nil
}
