package job

import (
	"strings"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
)

// batchOptions turns the flags of a batch job into what takes its place; nil where there are none.
func (f *execFlags) batchOptions() (*runner.Batch, error) {
	if f.batch == "" {
		return nil, nil
	}
	kind, _ := systems.Find(farm.BatchSystem(f.batch))
	if kind.Wrapper == nil {
		return nil, app.Usage("--batch "+strings.Join(app.BatchWords(), "|"), "no batch system %q", f.batch)
	}
	return &runner.Batch{Kind: kind, Requeues: config.DefaultRequeues, WaitTimeout: f.waitTimeout,
		Prologs: f.prologs}, nil
}
