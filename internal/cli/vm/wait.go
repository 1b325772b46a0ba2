package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// Codes of waiting for VMs.
const (
	CodeVMFailed  farm.Code = "vm-failed"
	CodeNotInTime farm.Code = "not-in-time"
)

// waitFlags say whether a command waits until its VMs are as it wants them.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *waitFlags) register(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until "+until+", and print progress")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "maximum `TIME` to wait")
}

// waiting is some VMs that are to get where they are wanted.
type waiting struct {
	a     *app.App
	c     *fleet.Client
	now   map[string]fleet.VM // by ID
	said  map[string]string   // the state that was told last
	left  map[string]bool
	doubt map[string]time.Time // VMs that failed a moment ago, and when that was seen
}

// doubtful is how long a VM may be failed before that is taken for its end: one that a host would not have is placed
// elsewhere.
const doubtful = 2 * time.Second

// until waits for VMs to be as they are wanted, and returns them as they are then. Those that are deleted are gone.
func (f waitFlags) until(ctx context.Context, a *app.App, c *fleet.Client, vms []fleet.VM) ([]fleet.VM, error) {
	if !f.wait || len(vms) == 0 {
		return vms, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	w := &waiting{a: a, c: c, now: map[string]fleet.VM{}, said: map[string]string{}, left: map[string]bool{},
		doubt: map[string]time.Time{}}
	for _, v := range vms {
		w.now[v.ID], w.left[v.ID] = v, true
	}
	var failed error
	for len(w.left) > 0 && failed == nil {
		if err := w.round(ctx); err != nil && errors.As(err, new(*farm.Error)) {
			failed = err
		} else if ctx.Err() != nil {
			failed = w.tooLate(ctx.Err())
		}
	}
	for i, v := range vms {
		vms[i] = w.now[v.ID]
	}
	return vms, failed
}

// round looks at all that is left, and then watches: first the revision, so that nothing falls between.
func (w *waiting) round(ctx context.Context) error {
	after, err := w.c.Revision(ctx)
	for id := range w.left {
		if err != nil {
			break
		}
		var v fleet.VM
		if v, err = w.c.VMs.Get(ctx, id); isGone(err) {
			err = w.gone(id)
		} else if err == nil {
			err = w.see(v)
		}
	}
	if err == nil && len(w.left) > 0 {
		err = w.watch(ctx, after)
	}
	if err == nil || errors.Is(err, errEnough) || errors.As(err, new(*farm.Error)) {
		return err
	}
	select { // the server may be another one in a moment
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return err
}

// watch follows changes, for no longer than it takes to look again at those that have failed.
func (w *waiting) watch(ctx context.Context, after int64) error {
	if len(w.doubt) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, doubtful)
		defer cancel()
	}
	return w.c.VMs.Watch(ctx, fleet.VMFilter{Project: w.project()}, after, w.changed)
}

// project is that of all VMs that are left, so that the server tells of no others; "": they are of several.
func (w *waiting) project() (project string) {
	for id := range w.left {
		p := w.now[id].Project
		if project != "" && p != project {
			return ""
		}
		project = p
	}
	return project
}

// errEnough ends a watch.
var errEnough = errors.New("all are as they are wanted, or one is to be looked at again")

func (w *waiting) changed(change fleet.Change) error {
	if !w.left[change.ID] {
		return nil
	}
	var err error
	if change.Deleted {
		err = w.gone(change.ID)
	} else {
		var v fleet.VM
		if v, err = change.VM(); err == nil {
			err = w.see(v)
		}
	}
	if err == nil && (len(w.left) == 0 || len(w.doubt) > 0) {
		return errEnough
	}
	return err
}

func (w *waiting) gone(id string) error {
	v := w.now[id]
	v.State, v.Pending = "gone", false
	w.now[id] = v
	w.say(v)
	delete(w.left, id)
	if v.Power != "deleted" {
		return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM, Message: fullName(v) + " was deleted meanwhile",
			Hint: "`grange audit list` shows by whom"}
	}
	return nil
}

func (w *waiting) see(v fleet.VM) error {
	w.now[v.ID] = v
	w.say(v)
	failed := v.State == "failed" && v.Power == "on"
	since, doubted := w.doubt[v.ID]
	switch {
	case failed && !doubted:
		w.doubt[v.ID] = time.Now()
	case failed && time.Since(since) < doubtful:
	case failed, v.State == "lost":
		return &farm.Error{Kind: farm.Conflict, Code: CodeVMFailed,
			Message: fullName(v) + ": " + v.State + reasonText(v),
			Hint:    "`grange vm console` shows what it said, `grange vm show` the rest"}
	case !v.Pending:
		delete(w.left, v.ID)
	}
	if !failed {
		delete(w.doubt, v.ID)
	}
	return nil
}

func reasonText(v fleet.VM) string {
	if text := v.Reason; text != "" {
		return ": " + text
	}
	if v.Notice != "" {
		return ": " + v.Notice
	}
	return ""
}

// say prints each state once.
func (w *waiting) say(v fleet.VM) {
	text := stateOf(v) + reasonText(v)
	if v.State == "running" && v.Host != "" {
		text = stateOf(v) + " on " + v.Host
	}
	if w.said[v.ID] != text {
		w.said[v.ID] = text
		fmt.Fprintf(w.a.Err, "%s  %s\n", fullName(v), output.Visible(text))
	}
}

func (w *waiting) tooLate(cause error) error {
	for id := range w.left {
		v := w.now[id]
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNotInTime,
			Message: fmt.Sprintf("%s is still %s%s", fullName(v), v.State, reasonText(v)), Err: cause,
			Hint: "nothing is taken back: look at it with `grange vm show`, ask `grange why`, or wait longer with " +
				"--timeout"}
	}
	return nil
}
