package runner

import (
	"os"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

// processOf returns the state of a process as the agent is told of it.
func processOf(p guest.Process) *api.Process {
	state := &api.Process{Umask: p.Umask, Ignored: p.Ignored, Blocked: p.Blocked, Nice: p.Nice, Null: p.Null,
		Closed: p.Closed}
	for _, l := range p.Limits {
		state.Limits = append(state.Limits, api.Limit(l))
	}
	return state
}

func bindTargets(binds []api.Bind) (all []string) {
	for _, b := range binds {
		all = append(all, b.Target)
	}
	return all
}

// environment is ours and what was set on top. TMPDIR names a directory of this host: the VM has /tmp.
func environment(set []string) []string {
	var env []string
	for _, kv := range append(os.Environ(), set...) {
		if strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "GRANGE_SOCKET=") ||
			strings.HasPrefix(kv, PublishedVariable+"=") ||
			strings.HasPrefix(kv, PoolVariable+"=") { // or what a session submits would be of its pool
			continue
		}
		env = append(env, kv)
	}
	return env
}

// batchEnvironment is the job's. Where the batch system has a directory for temporary files on this host, the VM has a
// /tmp that is the job's alone, and as short-lived.
func batchEnvironment(env []string, host string) []string {
	if host == "" {
		return env
	}
	var out []string
	for _, kv := range env {
		if key, value, _ := strings.Cut(kv, "="); value != host || key != "TMP" && key != "TEMP" && key != "TEMPDIR" {
			out = append(out, kv)
			continue
		}
		key, _, _ := strings.Cut(kv, "=")
		out = append(out, key+"=/tmp")
	}
	return append(out, "TMPDIR=/tmp")
}
