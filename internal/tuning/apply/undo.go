package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

// Undo takes a run back: the one with this ID, or the last that still holds when id is empty. Everything becomes what
// it was before that run. What somebody changed since is not overwritten unless force says so (CodeDrifted). An
// undo that was cut short goes on where it stopped.
func Undo(ctx context.Context, system System, id string, force bool, o Options) (*Run, error) {
	if err := mayChange(system); err != nil {
		return nil, err
	}
	unlock, err := lock(system.Root())
	if err != nil {
		return nil, err
	}
	defer unlock()
	run, err := find(system.Root(), id)
	if err != nil {
		return nil, err
	}
	if !force {
		if err := run.undrifted(ctx, system); err != nil {
			return run, err
		}
	}
	j, err := openJournal(system.Root(), run)
	if err != nil {
		return run, err
	}
	defer j.close()
	return run, worker{system, j, o}.takeBack(context.WithoutCancel(ctx), nil)
}

// Forget removes a run that was taken back from the history: of one that nobody is to ask for again.
func Forget(system System, id string) error {
	if err := mayChange(system); err != nil {
		return err
	}
	root := system.Root()
	unlock, err := lock(root)
	if err != nil {
		return err
	}
	defer unlock()
	run, err := readRun(root, id)
	if err != nil {
		return err
	}
	if run.Phase != Undone {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeUnfinished,
			Message: fmt.Sprintf("apply %s is %s", id, run.Phase), Hint: "grange tune undo " + id}
	}
	if err := root.RemoveAll(path.Join(stateDir, id)); err != nil {
		return err
	}
	return syncDir(root, stateDir)
}

// find is the run that an undo means.
func find(root *os.Root, id string) (*Run, error) {
	runs, err := History(root)
	if err != nil {
		return nil, err
	}
	none := &farm.Error{Kind: farm.NotFound, Code: CodeNoApply, Message: "nothing to undo",
		Hint: "`grange tune history` lists what was applied"}
	for _, r := range slices.Backward(runs) {
		holds := r.Phase == Applied || r.Phase.open()
		switch {
		case id == "" && holds, r.ID == id && holds:
			return r, nil
		case r.ID == id:
			none.Message = fmt.Sprintf("apply %s is %s already", r.ID, r.Phase)
			return nil, none
		}
	}
	if id != "" {
		none.Message = fmt.Sprintf("no apply %q", id)
	}
	return nil, none
}

// undrifted is an error that lists what is neither as the run left it nor as it found it.
func (r *Run) undrifted(ctx context.Context, system System) error {
	var changed []string
	for n, rec := range slices.Backward(r.records) {
		s := r.Plan.Steps[rec.Step]
		// The last step of a run that was cut short, on the way there or back, may be half made; a file never is.
		if r.undone[rec.Step] || s.Kind == StepBoot || r.Phase != Applied && n == r.last() && s.Kind != StepFile {
			continue
		}
		now, err := present(ctx, system, s)
		if err != nil && !missing(err) {
			return err
		}
		if err != nil || !same(s.Kind, now, s.New) && !same(s.Kind, now, s.Old) && !same(s.Kind, now, rec.Before) {
			changed = append(changed, s.Target())
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	return &farm.Error{Kind: farm.Conflict, Code: CodeDrifted,
		Message: fmt.Sprintf("changed by somebody since apply %s: %s", r.ID, strings.Join(changed, ", ")),
		Hint: "undo later applies first; `grange tune drift` shows the values; --force puts back what was there " +
			"before the apply"}
}

// last is the index of the last record that was not taken back; -1 when all were.
func (r *Run) last() int {
	for n := len(r.records) - 1; n >= 0; n-- {
		if !r.undone[r.records[n].Step] {
			return n
		}
	}
	return -1
}

// takeBack undoes every step that began, the last first. It goes on after an error: the more is as it was, the better.
// Also when the disk is too full for the journal: what was taken back and is not in it is taken back once more by the
// next undo.
func (w worker) takeBack(ctx context.Context, why error) error {
	run := w.journal.run
	var failed []error
	note := func(err error) {
		if err != nil {
			failed = append(failed, err)
		}
	}
	note(w.journal.phase(Undoing, why))
	for n, r := range slices.Backward(run.records) {
		if run.undone[r.Step] {
			continue
		}
		s := run.Plan.Steps[r.Step]
		w.options.tell(Progress{Step: s, N: n + 1, Of: len(run.records), Undo: true})
		if err := w.stepBack(ctx, s, r); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.Target(), err))
			continue
		}
		run.undone[r.Step] = true
		note(w.journal.write(entry{Undone: &r.Step}))
	}
	failed = append(failed, w.settle(ctx)...)
	if err := errors.Join(failed...); err != nil {
		if also := w.journal.phase(Failed, err); also != nil {
			err = errors.Join(err, also)
		}
		return &farm.Error{Kind: farm.Unavailable, Code: CodeUndoFailed,
			Message: "not everything could be put back", Err: errors.Join(why, err),
			Hint: "mend what it names, then `grange tune undo " + run.ID + "`: what is done is not done again"}
	}
	return w.journal.phase(Undone, why)
}

// stepBack makes the target of a step what it was. It may be called again after it was cut short.
func (w worker) stepBack(ctx context.Context, s Step, r record) error {
	if len(r.Files) > 0 {
		return w.restore(r.Files)
	}
	switch s.Kind {
	case StepFile:
		if err := w.restore([]snapshot{{s.Path, r.Before.File}}); err != nil {
			return err
		}
		for _, dir := range slices.Backward(r.Parents) {
			if err := w.system.Root().Remove(dir); err != nil && !missing(err) && !errors.Is(err, syscall.ENOTEMPTY) {
				return err
			}
		}
	case StepValue, StepUnmerge:
		return w.writeBack(ctx, s)
	case StepService:
		return w.system.SetService(ctx, s.Unit, *r.Before.Service)
	case StepModule:
		return w.system.Load(ctx, r.Modules)
	}
	return nil
}

// restore puts entries back: those that were there, directories first; then it removes those that were not.
func (w worker) restore(files []snapshot) error {
	root := w.system.Root()
	for _, f := range files {
		if err := root.Remove(scratchName(f.Path)); err != nil && !missing(err) {
			return err
		}
		if f.File == nil {
			continue
		}
		now, err := readFile(root, f.Path)
		if err == nil && !now.equal(f.File) {
			err = putFile(root, f.Path, f.File)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range slices.Backward(files) {
		if f.File == nil {
			if err := putFile(root, f.Path, nil); err != nil && !missing(err) {
				return err
			}
		}
	}
	return nil
}

// writeBack sets a value to what it was when the plan was made, and reads it back. One that the kernel does not have
// any more cannot be anything: without force, that was said before.
func (w worker) writeBack(ctx context.Context, s Step) error {
	now, err := present(ctx, w.system, s)
	if missing(err) {
		return nil
	}
	// Unmerge of a killed run may be about to stop KSM yet: Write waits
	if err != nil || now.Text == s.Old.Text && s.Kind != StepUnmerge {
		return err
	}
	if err := w.system.Write(ctx, s.Path, s.Old.Text); err != nil {
		return err
	}
	if now, err = present(ctx, w.system, s); err != nil || same(s.Kind, now, s.Old) {
		return err
	}
	if _, ok := poolOf(s.Path); ok {
		// Pages that VMs use stay until they end, and are surplus until then.
		n, _ := strconv.ParseInt(now.Text, 10, 64)
		if strconv.FormatInt(n-surplus(w.system.Root(), s.Path), 10) == s.Old.Text {
			return nil
		}
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNotTaken,
		Message: fmt.Sprintf("%s reads %q after %q was written", s.Target(), now.Text, s.Old.Text)}
}

// settle does what has to come after all steps: the boot loader reads files that are as they were now, and a service
// that was started again may have set values that were put back before.
func (w worker) settle(ctx context.Context) []error {
	var failed []error
	run := w.journal.run
	for _, r := range run.records {
		s := run.Plan.Steps[r.Step]
		var err error
		switch {
		case s.Kind == StepBoot:
			err = w.system.UpdateBoot(ctx)
		case (s.Kind == StepValue || s.Kind == StepUnmerge) && run.undone[r.Step]:
			err = w.writeBack(ctx, s)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.Target(), err))
		}
	}
	return failed
}
