package agent

import (
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// scriptBytes is what a request brings in files.
func scriptBytes(r *api.JobRequest) int {
	n := 0
	for _, p := range r.Prologs {
		n += len(p.Content)
	}
	if r.Script != nil {
		n += len(r.Script.Content)
	}
	return n
}

// requestBytes is about what a request takes in memory.
func requestBytes(r *api.JobRequest) int64 {
	if r == nil {
		return 0
	}
	n := scriptBytes(r)
	for _, words := range [][]string{r.Env, r.Argv} {
		for _, w := range words {
			const header = 16 // of a string
			n += len(w) + header
		}
	}
	return int64(n)
}

// lighten forgets what the guest has now, or a VM has no use for.
func lighten(r *api.JobRequest) *api.JobRequest {
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

// checkScript refuses a script that the VM could not take: it would die of it before the job begins, and again on the
// next host.
func checkScript(r *api.JobRequest, memory farm.Bytes) error {
	n := farm.Bytes(scriptBytes(r))
	if most := memory / shareOfScript; n > most {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeScriptSize,
			Message: fmt.Sprintf("the job's script has %v; a VM of %v takes %v", n, memory, most),
			Hint:    "ask for more memory; or put it where the VM sees it: the working directory, or a bound one"}
	}
	return nil
}
