package inside

import (
	"slices"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/guest"
)

// noPreemption keeps the runtime of Go from sending URG to its threads. Where the job blocks URG, it would find one
// pending from the time when its process was the trampoline.
const noPreemption = "GODEBUG=asyncpreemptoff=1"

// trampolineEnv is the environment that the trampoline is started with: the job's, with noPreemption where that is
// needed. The runtime reads it before anything of ours runs.
func trampolineEnv(env []string, p guest.Process) []string {
	if !p.Blocks(syscall.SIGURG) {
		return env
	}
	env = slices.Clone(env)
	for i, kv := range env {
		if own, ok := strings.CutPrefix(kv, "GODEBUG="); ok {
			env[i] = noPreemption + "," + own
			return env
		}
	}
	return append(env, noPreemption)
}

// jobEnv is the job's environment, of the one that the trampoline was started with.
func jobEnv(env []string, blocked uint64) []string {
	if !(guest.Process{Blocked: blocked}).Blocks(syscall.SIGURG) {
		return env
	}
	for i, kv := range env {
		if kv == noPreemption {
			return slices.Delete(env, i, i+1)
		}
		if own, ok := strings.CutPrefix(kv, noPreemption+","); ok {
			env[i] = "GODEBUG=" + own
			break
		}
	}
	return env
}
