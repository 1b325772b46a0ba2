package htcondor

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// Kind is HTCondor.
var Kind = batch.Kind{
	Name: farm.HTCondor,
	Open: func(s batch.Settings) (batch.System, error) {
		return NewDriver(DriverOptions{Env: s.Env("CONDOR_CONFIG")}, program.Start), nil
	},
	Find:   allotment.HTCondor,
	Limits: masterLimits,
	// The access point's job transform keeps a job with 199 in the queue, and holds one with 197. A file named by
	// _CONDOR_WRAPPER_ERROR_FILE would need no transform, but HTCondor 23.9 looks at it no more.
	Wrapper: &batch.Wrapper{Requeue: batch.ExitNotStarted, Hold: true, Tried: tried, Places: places},
}

// tried: the schedd counts in the job's ad, from 1 at the first start.
func tried(getenv func(string) string, read func(string) ([]byte, error)) int {
	ad, err := read(getenv("_CONDOR_JOB_AD"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(ad)) {
		if key, value, ok := strings.Cut(line, "="); ok &&
			strings.EqualFold(strings.TrimSpace(key), "NumShadowStarts") {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return max(n-1, 0)
		}
	}
	return 0
}

func places(getenv func(string) string) []batch.Place {
	if dir := getenv("_CONDOR_SCRATCH_DIR"); filepath.IsAbs(dir) {
		return []batch.Place{{Dir: dir}}
	}
	return nil
}
