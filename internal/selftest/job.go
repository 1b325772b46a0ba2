package selftest

import (
	"context"
	"os/exec"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// launcher starts the jobs of the test.
func (t *tester) launcher() execjob.Launcher {
	return execjob.Launcher{Socket: t.Socket, Grange: t.Grange, GuestFile: t.GuestFile, Image: t.image, Seen: t.ours}
}

// probeIn is the command line of a probe in a VM.
func (t *tester) probeIn(args ...string) []string {
	return t.launcher().Guest(append([]string{probe.Name}, args...)...)
}

func shapeOf(s verdict.Shape) execjob.Shape {
	return execjob.Shape{CPUs: s.CPUs, Memory: s.Memory, Cells: s.Cells, Whole: s.Whole, PageSize: s.PageSize}
}

func (t *tester) exec(ctx context.Context, s verdict.Shape, flags []string, argv ...string) *exec.Cmd {
	return t.launcher().Command(ctx, shapeOf(s), flags, argv...)
}

func (t *tester) launch(ctx context.Context, s verdict.Shape, argv ...string) (*execjob.Job, error) {
	return t.launcher().Launch(ctx, shapeOf(s), nil, argv...)
}

func (t *tester) run(ctx context.Context, s verdict.Shape, flags []string, argv ...string) (verdict.Job,
	*execjob.Events) {
	end, events := t.launcher().Run(ctx, shapeOf(s), flags, argv...)
	return verdict.Job(end), events
}

// ours notes that a VM is the test's own.
func (t *tester) ours(v api.VM) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own[v.ID], t.own[v.Name] = true, true
}

func (t *tester) isOurs(v api.VM) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own[v.ID]
}
