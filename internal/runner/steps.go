package runner

import (
	"context"
	"os"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/program"
	"github.com/grange-project/grange/internal/steps"
)

// serveSteps starts steps of our batch job for whoever asks in the VM, until ctx ends.
func (j *Job) serveSteps(ctx context.Context, s *api.Steps) {
	served := steps.Job{ID: s.Job, Conf: s.Conf, Places: map[string]steps.Place{}}
	if here, err := os.Getwd(); err == nil {
		served.Dir = here
	}
	for _, b := range j.binds {
		served.Places[b.Target] = b.at
	}
	if vm := j.request.Image; vm != "" { // as the plug-in gave it to us: the steps' tasks enter the same VM
		if j.request.Shape != "" {
			vm += ":" + j.request.Shape
		}
		served.Wishes = append(served.Wishes, "--vm="+vm)
	}
	for _, b := range j.asked {
		if !strings.ContainsAny(b.Source+b.Target, ",:") {
			served.Wishes = append(served.Wishes, "--vm-mount="+b.text())
		}
	}
	steps.NewServer(served, func() (string, error) { return program.Find("srun") }).Serve(ctx, j.session)
}

// becomeStep makes the request that of a step's task, where it is one: its command and environment come from the VM
// that asked for it. What of the host it sees does not.
func (j *Job) becomeStep() error {
	if j.batch == nil {
		return nil
	}
	task, ok, err := steps.Unpack(j.request.Argv, j.request.Env)
	if err != nil || !ok {
		return err
	}
	j.request.Argv, j.request.Env, j.request.Dir, j.request.Script = task.Argv, task.Env, task.Dir, nil
	j.request.Process = processOf(task.Process)
	j.step = &task
	return nil
}
