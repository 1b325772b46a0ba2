package runner

import (
	"os"
	"slices"
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
// /tmp that is the job's alone, and as short-lived. Grid Engine puts the directory into PATH, too.
func batchEnvironment(env []string, host string) []string {
	if host == "" {
		return env
	}
	var out []string
	for _, kv := range env {
		switch key, value, _ := strings.Cut(kv, "="); {
		case value == host && (key == "TMP" || key == "TEMP" || key == "TEMPDIR"):
			kv = key + "=/tmp"
		case key == "PATH":
			kv = "PATH=" + replaceDir(value, host)
		}
		out = append(out, kv)
	}
	return append(out, "TMPDIR=/tmp")
}

// replaceDir puts /tmp in the place of a directory in a list of directories.
func replaceDir(list, host string) string {
	dirs := strings.Split(list, ":")
	for i, d := range dirs {
		if d == host {
			dirs[i] = "/tmp"
		}
	}
	return strings.Join(dirs, ":")
}

func withoutVariables(env, names []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}
