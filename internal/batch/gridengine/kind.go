package gridengine

import (
	"path/filepath"
	"strconv"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Kind is Grid Engine.
var Kind = batch.Kind{
	Name: farm.GridEngine,
	Open: func(s batch.Settings) (batch.System, error) {
		return NewDriver(FromEnvironment(s.Environ()),
			DriverOptions{Projects: s.Projects, Parallel: s.Parallel, Hold: s.Hold}), nil
	},
	Find:     allotment.GridEngine,
	Limits:   masterLimits,
	Holds:    batch.AnyHolds,
	Parallel: true,
	// sge_shepherd takes 99 for "again" by itself.
	Wrapper: &batch.Wrapper{Requeue: 99, Tried: tried, Places: places,
		Own: []string{"SGE_STARTER_SHELL_PATH", "SGE_STARTER_SHELL_START_MODE", "SGE_STARTER_USE_LOGIN_SHELL"}},
}

// tried: RESTARTED is 0 at first and not 0 ever after. One more time is all that can be told apart.
func tried(getenv func(string) string, _ func(string) ([]byte, error)) int {
	if n, _ := strconv.Atoi(getenv("RESTARTED")); n != 0 {
		return batch.Countless
	}
	return 0
}

// places: the spool directory has the file of hosts of a parallel environment.
func places(getenv func(string) string) []batch.Place {
	if dir := getenv("SGE_JOB_SPOOL_DIR"); filepath.IsAbs(dir) {
		return []batch.Place{{Dir: dir, ReadOnly: true}}
	}
	return nil
}
