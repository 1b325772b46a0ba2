package cli

import (
	"context"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/steps"
)

// serveSteps starts steps of our batch job for whoever asks in the VM, until ctx ends.
func (r *runner) serveSteps(ctx context.Context, s *api.Steps) {
	j := steps.Job{ID: s.Job, Conf: s.Conf}
	if vm := r.request.Image; vm != "" { // as the plug-in gave it to us: the steps' tasks enter the same VM
		if r.request.Shape != "" {
			vm += ":" + r.request.Shape
		}
		j.Wishes = append(j.Wishes, "--vm="+vm)
	}
	for _, b := range r.asked {
		mount := b.dir + ":" + b.Target
		if b.ReadOnly {
			mount += ":ro"
		}
		if !strings.ContainsAny(b.dir+b.Target, ",:") {
			j.Wishes = append(j.Wishes, "--vm-mount="+mount)
		}
	}
	steps.NewServer(j, func() (string, error) { return program.Find("srun") }).Serve(ctx, r.session)
}

// becomeStep makes the request that of a step's task, where it is one: its command and environment come from the VM that asked for it.
func (r *runner) becomeStep() error {
	if r.request.Batch == "" {
		return nil
	}
	step, ok, err := steps.Unpack(r.request.Argv, r.request.Env)
	if err != nil || !ok {
		return err
	}
	r.request.Argv, r.request.Env, r.request.Dir, r.request.Script = step.Argv, step.Env, step.Dir, nil
	return nil
}
