package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch/program"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
	"github.com/grange-project/grange/internal/steps"
)

// serveSteps starts steps of our batch job for whoever asks in the VM, until ctx ends.
func (r *runner) serveSteps(ctx context.Context, s *api.Steps) {
	j := steps.Job{ID: s.Job, Conf: s.Conf, Places: map[string]steps.Place{}}
	if here, err := os.Getwd(); err == nil {
		j.Dir = here
	}
	for _, b := range r.binds {
		j.Places[b.Target] = b.place
	}
	if vm := r.request.Image; vm != "" { // as the plug-in gave it to us: the steps' tasks enter the same VM
		if r.request.Shape != "" {
			vm += ":" + r.request.Shape
		}
		j.Wishes = append(j.Wishes, "--vm="+vm)
	}
	for _, b := range r.asked {
		if !strings.ContainsAny(b.dir+b.Target, ",:") {
			j.Wishes = append(j.Wishes, "--vm-mount="+b.text())
		}
	}
	steps.NewServer(j, func() (string, error) { return program.Find("srun") }).Serve(ctx, r.session)
}

// becomeStep makes the request that of a step's task, where it is one: its command and environment come from the VM
// that asked for it. What of the host it sees does not.
func (r *runner) becomeStep() error {
	if r.request.Batch == "" {
		return nil
	}
	task, ok, err := steps.Unpack(r.request.Argv, r.request.Env)
	if err != nil || !ok {
		return err
	}
	r.request.Argv, r.request.Env, r.request.Dir, r.request.Script = task.Argv, task.Env, task.Dir, nil
	r.step = &task
	return nil
}

// openBinds opens what the VM is to see, once and for all: from here on no name on the host counts. A step's task sees
// what its job's script sees, in the very same places, and nothing else: where a name leads to on the way to it, the VM
// may have decided.
func (r *runner) openBinds() error {
	var kept []bindSource
	for _, b := range r.binds {
		d, err := gateway.Open(b.dir)
		if err != nil {
			return bindError(b.dir, err)
		}
		b.opened = d
		if b.place.Path, err = d.Path(); err != nil {
			return fmt.Errorf("bind %s: %w", b.dir, err)
		}
		if r.step != nil {
			given, ok := r.step.Places[b.Target]
			if !ok || given.Path != b.place.Path {
				d.Close()
				fmt.Fprintf(r.app.err,
					"grange: the VM does not get %s: it is none of the places that the job's script has, or no "+
						"longer the same\n", b.dir)
				continue
			}
			b.ReadOnly = b.ReadOnly || given.ReadOnly
			b.setID, b.devices = b.setID && given.SetID, b.devices && given.Devices
		}
		b.place.ReadOnly, b.place.SetID, b.place.Devices = b.ReadOnly, b.setID, b.devices
		kept = append(kept, b)
	}
	r.binds, r.request.Binds = kept, targets(kept)
	return nil
}

func bindError(dir string, err error) error {
	refused := new(gateway.RefusedError)
	if !errors.As(err, &refused) {
		return fmt.Errorf("bind %s: %w", dir, err)
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBindRefused, Message: "no VM may see " + refused.Error(),
		Hint: "bind directories that hold data; the VM has a /proc, /sys and /dev of its own"}
}
