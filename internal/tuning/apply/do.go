package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Progress is told before each step.
type Progress struct {
	Step Step
	N    int // from 1
	Of   int
	Undo bool // it is taken back
}

// Options of an apply or undo.
type Options struct {
	Who  Who
	Tell func(Progress) // may be nil
	// Begin is told which run an apply is before anything changes, and stops it by an error; may be nil.
	Begin func(id string) error
}

func (o Options) tell(p Progress) {
	if o.Tell != nil {
		o.Tell(p)
	}
}

// Do makes a plan: each step is recorded on disk before it is made and read back after. When one fails, or ctx ends,
// all that were made are taken back, and the error says so (CodeApplyFailed). Nothing begins while an earlier
// apply is unfinished (farm.CodeUnfinished), VMs run that must not (farm.CodeVMsRunning), memory is short
// (CodeNoHeadRoom), or the host is not what the plan was made for (CodeStalePlan). On a tree, where nothing
// can break, VMs and memory are no obstacle.
func Do(ctx context.Context, system System, plan Plan, o Options) (*Run, error) {
	if err := mayChange(system); err != nil {
		return nil, err
	}
	unlock, err := lock(system.Root())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := nothingOpen(system.Root()); err != nil {
		return nil, err
	}
	// a tree shows what the host will be like when it is ready
	if err := plan.Ready(system); err != nil && system.Live() {
		return nil, err
	}
	if err := plan.fresh(ctx, system); err != nil {
		return nil, err
	}
	j, err := newJournal(system.Root(), plan, o.Who, time.Now())
	if err != nil {
		return nil, err
	}
	defer j.close()
	if o.Begin != nil {
		if err := o.Begin(j.run.ID); err != nil {
			return nil, errors.Join(err, j.phase(Undone, err))
		}
	}
	if err := j.phase(Applying, nil); err != nil {
		return nil, err
	}
	w := worker{system, j, o}
	if err = w.steps(ctx); err == nil {
		err = j.phase(Applied, nil)
	}
	if err == nil {
		return j.run, nil
	}
	ctx = context.WithoutCancel(ctx) // what has begun is taken back in any case
	if back := w.takeBack(ctx, err); back != nil {
		return j.run, back
	}
	failed := &farm.Error{Kind: farm.Unavailable, Code: CodeApplyFailed,
		Message: "stopped, and all steps were taken back", Err: err}
	if own := new(farm.Error); errors.As(err, &own) {
		failed.Kind, failed.Hint = own.Kind, own.Hint
	}
	return j.run, failed
}

// Startable reports whether something can be applied to a system: the caller may (else farm.CodeNeedsRoot), nobody else
// does (CodeTuningBusy), and nothing was cut short (farm.CodeUnfinished).
func Startable(system System) error {
	if err := mayChange(system); err != nil {
		return err
	}
	if _, err := system.Root().Stat(stateDir); missing(err) {
		return nil
	}
	unlock, err := lock(system.Root())
	if err != nil {
		return err
	}
	defer unlock()
	return nothingOpen(system.Root())
}

func mayChange(system System) error {
	if system.Live() && os.Geteuid() != 0 {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNeedsRoot, Message: "only root may change this host",
			Hint: "use sudo, or try it on a recorded host with --root DIR"}
	}
	return nil
}

func nothingOpen(root *os.Root) error {
	open, err := openRun(root)
	if err != nil || open == nil {
		return err
	}
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeUnfinished,
		Message: fmt.Sprintf("apply %s was cut short: %s", open.ID, open.Phase),
		Hint:    "grange tune undo " + open.ID + ", then apply again"}
}

// fresh reports whether the host is still as the plan found it.
func (p Plan) fresh(ctx context.Context, system System) error {
	for _, s := range p.Steps {
		now, err := present(ctx, system, s)
		if err != nil {
			return err
		}
		if !same(s.Kind, now, s.Old) {
			return &farm.Error{Kind: farm.Conflict, Code: CodeStalePlan,
				Message: s.Target() + " changed since the plan was made", Hint: "plan again; nothing was changed"}
		}
	}
	return nil
}

// present reads what a step is about.
func present(ctx context.Context, system System, s Step) (State, error) {
	switch s.Kind {
	case StepFile:
		f, err := readFile(system.Root(), s.Path)
		return State{File: f}, err
	case StepValue, StepUnmerge:
		b, err := readBytes(system.Root(), s.Path)
		return State{Text: chosen(string(b))}, err
	case StepService:
		now, err := system.Service(ctx, s.Unit)
		return State{Service: &now}, err
	case StepModule:
		all, err := moduleParams(system.Root(), s.Unit)
		params := map[string]string{}
		for name := range s.New.Params {
			params[name] = all[name]
		}
		return State{Params: params}, err
	}
	return State{}, nil
}

func same(kind StepKind, a, b State) bool {
	switch kind {
	case StepFile:
		return a.File.equal(b.File)
	case StepService:
		return a.Service.Active == b.Service.Active && a.Service.Enabled == b.Service.Enabled
	case StepModule:
		return maps.EqualFunc(a.Params, b.Params, sameValue)
	}
	return sameValue(a.Text, b.Text)
}

// worker makes the steps of one run, or takes them back.
type worker struct {
	system  System
	journal *journal
	options Options
}

func (w worker) steps(ctx context.Context) error {
	steps := w.journal.run.Plan.Steps
	for i, s := range steps {
		if err := ctx.Err(); err != nil {
			return errors.New("interrupted")
		}
		w.options.tell(Progress{Step: s, N: i + 1, Of: len(steps)})
		if err := w.step(ctx, i); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.Target(), err)
		}
	}
	for _, s := range steps { // a daemon may have set back what an early step wrote
		if err := w.verify(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w worker) step(ctx context.Context, i int) error {
	s := w.journal.run.Plan.Steps[i]
	r, err := w.record(ctx, i)
	if err != nil {
		return err
	}
	if err := w.journal.write(entry{Begin: &r}); err != nil {
		return err
	}
	if err := w.make(ctx, s, r); err != nil {
		return err
	}
	if err := w.verify(ctx, s); err != nil {
		return err
	}
	return w.journal.write(entry{Done: &i})
}

// record reads all that the step may change.
func (w worker) record(ctx context.Context, i int) (record, error) {
	s, root := w.journal.run.Plan.Steps[i], w.system.Root()
	before, err := present(ctx, w.system, s)
	if err != nil {
		return record{}, err
	}
	r := record{Step: i, Before: before}
	switch s.Kind {
	case StepFile:
		r.Parents, err = missingParents(root, s.Path)
	case StepModule:
		r.Modules, err = modulesAround(root, s.Unit)
	}
	if err != nil {
		return record{}, err
	}
	touched, err := w.system.Touches(s)
	if err != nil {
		return record{}, err
	}
	for _, name := range touched {
		if s.Kind != StepService { // of a service the links themselves are what counts
			if name, err = resolve(root, name); err != nil {
				return record{}, err
			}
		}
		f, err := readFile(root, name)
		if err != nil {
			return record{}, err
		}
		r.Files = append(r.Files, snapshot{name, f})
	}
	return r, nil
}

func (w worker) make(ctx context.Context, s Step, r record) error {
	root := w.system.Root()
	switch s.Kind {
	case StepFile:
		for _, dir := range r.Parents {
			if err := putFile(root, dir,
				&File{Mode: os.ModeDir | 0o755, UID: w.system.Owner(), GID: w.system.Group()}); err != nil {
				return err
			}
		}
		return putFile(root, s.Path, s.New.File)
	case StepValue:
		if _, ok := poolOf(s.Path); ok {
			return w.pages(ctx, s)
		}
		return w.system.Write(ctx, s.Path, s.New.Text)
	case StepUnmerge:
		if !w.system.Live() {
			return w.system.Unmerge(ctx)
		}
		return unmerge(ctx, w.system)
	case StepService:
		return w.system.SetService(ctx, s.Unit, *s.New.Service)
	case StepModule:
		if vms, err := w.system.VMs(); err != nil || len(vms) > 0 && w.system.Live() { // one may have started since
			return errors.Join(err, vmsRunning(vms))
		}
		return w.system.Load(ctx, overlay(r.Modules, s))
	case StepBoot:
		return w.system.UpdateBoot(ctx)
	}
	return fmt.Errorf("no way to make a step of kind %q", s.Kind)
}

// overlay is modules with the parameters that a step sets.
func overlay(modules []Module, s Step) []Module {
	out := make([]Module, len(modules))
	for i, m := range modules {
		out[i] = Module{m.Name, maps.Clone(m.Params)}
		if m.Name == s.Unit {
			maps.Copy(out[i].Params, s.New.Params)
		}
	}
	return out
}

// pages asks for huge pages. The kernel gives as many as it finds memory in one piece for, and more after it has moved
// things together.
func (w worker) pages(ctx context.Context, s Step) error {
	const tries = 3
	for n := 1; ; n++ {
		if err := w.system.Write(ctx, s.Path, s.New.Text); err != nil {
			return err
		}
		now, err := present(ctx, w.system, s)
		if err != nil || same(s.Kind, now, s.New) || n == tries {
			return err // what is missing, verify tells
		}
		if w.system.Live() {
			if err := w.system.Write(ctx, compactPath(s.Path), "1"); err != nil && !missing(err) {
				return err
			}
		}
	}
}

// compactPath is what makes the kernel move pages together: of one node, or everywhere.
func compactPath(pages string) string {
	if p, _ := poolOf(pages); p.node >= 0 {
		return fmt.Sprintf("%s/node%d/compact", nodeDir, p.node)
	}
	return "proc/sys/vm/compact_memory"
}

// verify reads back what a step has made.
func (w worker) verify(ctx context.Context, s Step) error {
	now, err := present(ctx, w.system, s)
	if err != nil || same(s.Kind, now, s.New) {
		return err
	}
	if p, ok := poolOf(s.Path); ok {
		return fewPages(s, p, now.Text)
	}
	e := &farm.Error{Kind: farm.Unavailable, Code: CodeNotTaken, Message: s.Target() + " is not what was set",
		Hint: "something else manages it, or the hardware does not have it"}
	if s.Kind == StepValue || s.Kind == StepUnmerge {
		e.Message = fmt.Sprintf("%s reads %q after %q was written", s.Target(), now.Text, s.New.Text)
	}
	return e
}

func fewPages(s Step, p pool, got string) error {
	where := "the host"
	if p.node >= 0 {
		where = fmt.Sprintf("node %d", p.node)
	}
	return &farm.Error{Kind: farm.NoCapacity, Code: CodeFewPages,
		Message: fmt.Sprintf("%s gave %s of %s huge pages of %s", where, got, s.New.Text, p.size),
		Hint: "memory is in use or in pieces: apply right after a boot, put the pages on the kernel's command line, " +
			"or use a profile with smaller pages"}
}

// surplus is how many pages of a pool go as soon as the VMs in them end.
func surplus(root *os.Root, pages string) int64 {
	return (&tree{root}).number(path.Join(path.Dir(pages), "surplus_hugepages"))
}
