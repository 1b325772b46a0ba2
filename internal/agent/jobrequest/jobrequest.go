// Package jobrequest is about requests of jobs: which of them make sense, and what they take in memory, of the agent
// that keeps them while they wait, and of the VM that is to have their files.
package jobrequest

import (
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// filesSize is what a request brings in files.
func filesSize(r *api.JobRequest) int {
	n := 0
	for _, p := range r.Prologs {
		n += len(p.Content)
	}
	if r.Script != nil {
		n += len(r.Script.Content)
	}
	return n
}

// Size is about what a request takes in memory.
func Size(r *api.JobRequest) int64 {
	if r == nil {
		return 0
	}
	n := filesSize(r)
	for _, words := range [][]string{r.Env, r.Argv} {
		for _, w := range words {
			const header = 16 // of a string
			n += len(w) + header
		}
	}
	return int64(n)
}

// Light is a request without what the guest has now, or a VM has no use for.
func Light(r *api.JobRequest) *api.JobRequest {
	if r == nil {
		return nil
	}
	light := *r
	light.Script, light.Prologs, light.Env, light.Argv = nil, nil, nil, nil
	return &light
}

// A guest takes a script as a line of JSON, in memory, and writes it into a file system that is in memory too: four
// times its size, and all else in the VM has to have room beside it.
const shareOfScript = 8

// CheckScript refuses a script that the VM could not take: it would die of it before the job begins, and again on the
// next host.
func CheckScript(r *api.JobRequest, memory farm.Bytes) error {
	n := farm.Bytes(filesSize(r))
	if most := memory / shareOfScript; n > most {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeScriptSize,
			Message: fmt.Sprintf("the job's script has %v; a VM of %v takes %v", n, memory, most),
			Hint:    "ask for more memory; or put it where the VM sees it: the working directory, or a bound one"}
	}
	return nil
}
