// Package systems is the list of batch systems.
package systems

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/exec"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/batch/lsf"
	"github.com/grange-project/grange/internal/batch/pbs"
	"github.com/grange-project/grange/internal/batch/slurm"
	"github.com/grange-project/grange/internal/farm"
)

// All are the batch systems that there are drivers for.
var All = []batch.Kind{
	slurm.Kind,
	gridengine.Kind,
	htcondor.Kind,
	pbs.Kind,
	lsf.Kind,
	exec.Kind,
}

// Find returns the system of this name.
func Find(name farm.BatchSystem) (batch.Kind, bool) {
	i := slices.IndexFunc(All, func(k batch.Kind) bool { return k.Name == name })
	if i < 0 {
		return batch.Kind{}, false
	}
	return All[i], true
}

// JobOf returns the batch job that a process belongs to, as allotment.Of.
func JobOf(files fs.FS, pid int) (farm.Allotment, error) {
	var finders []allotment.Finder
	for _, k := range All {
		if k.Find != nil {
			finders = append(finders, k.Find)
		}
	}
	return allotment.Of(files, pid, finders)
}

// WithJobs are the systems whose jobs the agent recognises.
func WithJobs() []farm.BatchSystem {
	var names []farm.BatchSystem
	for _, k := range All {
		if k.Find != nil {
			names = append(names, k.Name)
		}
	}
	return names
}

// Names are all, as people read them.
func Names() string {
	var names []string
	for _, k := range All {
		names = append(names, string(k.Name))
	}
	return strings.Join(names, ", ")
}
