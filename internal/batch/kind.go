package batch

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch/limits"
	"github.com/grange-project/grange/internal/farm"
)

// Kind is all that the rest of grange knows of one batch system: a value in the folder of the system, and a line in
// internal/batch/systems.
type Kind struct {
	Name farm.BatchSystem
	// Open makes the driver.
	Open func(Settings) (System, error)
	// Find recognises its jobs, by what root alone can write; nil: it recognises none. A process that it takes for a
	// job's is in one.
	Find allotment.Finder
	// Lookup asks, as root, what the kernel does not know of a job on this host; nil: there is no way to ask.
	Lookup func(ctx context.Context, a farm.Allotment, pid int) (farm.Allotment, error)
	// Wrapper is how the system's jobs are handed over; nil where Find is.
	Wrapper *Wrapper
	// Limits are what its master needs; the zero value: nothing is known of that.
	Limits limits.System

	Program  bool // Settings.Program is needed
	Holds    int  // how many Settings.Hold may be
	Parallel bool // Settings.Parallel and Projects have a meaning
}

// AnyHolds is a number of Settings.Hold that nobody reaches.
const AnyHolds = 1 << 10

// Settings are what a site configures of a batch system.
type Settings struct {
	Program     string            // a site's own driver
	Environment map[string]string // of the system's commands; nil: ours
	Hold        []string          // options that keep placeholders out of VMs, or a queue that does
	Parallel    string            // parallel environment of placeholders of several CPUs
	Projects    bool              // accounts are projects
}

// Environ is the environment that was configured, or else ours.
func (s Settings) Environ() []string {
	if len(s.Environment) == 0 {
		return os.Environ()
	}
	var environ []string
	for _, key := range slices.Sorted(maps.Keys(s.Environment)) {
		environ = append(environ, key+"="+s.Environment[key])
	}
	return environ
}

// Env is what was configured, or else these variables of ours, which are the system's own.
func (s Settings) Env(keys ...string) []string {
	environ := s.Environ()
	if len(s.Environment) > 0 {
		return environ
	}
	return slices.DeleteFunc(environ, func(kv string) bool {
		key, value, _ := strings.Cut(kv, "=")
		return value == "" || !slices.Contains(keys, key)
	})
}

// Value is one variable of Environ.
func (s Settings) Value(key string) string {
	for _, kv := range s.Environ() {
		if value, ok := strings.CutPrefix(kv, key+"="); ok {
			return value
		}
	}
	return ""
}

// Queue is Hold of a system that takes one.
func (s Settings) Queue() string {
	if len(s.Hold) > 0 {
		return s.Hold[0]
	}
	return ""
}

// Wrapper is what `grange exec --batch` has to know in the place of a job.
type Wrapper struct {
	// Requeue is the exit status that has the system put the job back into its queue. docs/guide/exec.md has a table of
	// what to configure there.
	Requeue int
	// Tried returns how often the job was in the queue again before; nil: the system itself counts. What it reads is
	// the user's, who harms nobody but their own job by writing something else there.
	Tried func(getenv func(string) string, read func(string) ([]byte, error)) int
	// Hold: ExitNever has the system hold the job, so that no job may end with it by itself.
	Hold bool
	// Command turns what the system has us run into a command; nil: it is one.
	Command func(argv []string) []string
	// ScriptOnStdin: a login shell without arguments reads the path of the job's script first.
	ScriptOnStdin bool
	// Temporary is the TMPDIR that the system gives to a job without one, after it has started the wrapper.
	Temporary string
	// Own are variables that the system sets for a wrapper and not for a job.
	Own []string
	// Places returns directories that the system makes for one job, and names in variables that scripts use. The
	// variables are the job's own word, and so is what they show: a directory is served with the rights of its user.
	Places func(getenv func(string) string) []Place
}

// Exit statuses of the wrapper.
const (
	ExitNever      = 197 // no VM was started, the job did not run, and the system should not try again
	ExitVMLost     = 198 // the VM ended under the job, which may have run in part
	ExitNotStarted = 199 // no VM was started: the system may put the job back into its queue
)

// Takes reports whether the system would take this status of a job for the wrapper's. Another status by which jobs ask
// to be queued again, as Grid Engine's 99, is theirs as well.
func (w *Wrapper) Takes(status int) bool {
	return status == ExitNotStarted && w.Requeue == ExitNotStarted || status == ExitNever && w.Hold
}

// Countless is of Wrapper.Tried: again, and nobody knows how often.
const Countless = 1 << 30

// Place is a directory of a job.
type Place struct {
	Dir      string
	ReadOnly bool
}
