package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
)

// TestMinimumRefuses asks a host for more than any has.
func TestMinimumRefuses(t *testing.T) {
	a := claimAgent(t.TempDir())
	v := &vm{agent: a, request: &api.JobRequest{},
		record: record{Caller: Caller{Batch: farm.Allotment{System: farm.Slurm, Job: "1"}}}}
	v.making.vm = v
	if err := v.making.awaitMinimum(); err != nil {
		t.Errorf("without a minimum: %v", err)
	}
	a.cfg.Minimum.Disk, a.cfg.Minimum.Memory = 1<<62, 1<<62
	err := v.making.awaitMinimum()
	e := new(farm.Error)
	if !errors.As(err, &e) || e.Kind != farm.NoCapacity || e.Code != machine.CodeBelowMinimum ||
		!strings.Contains(e.Message, "disk space in "+a.cfg.StateDir) ||
		!strings.Contains(e.Message, "; memory is short") {
		t.Errorf("%v", err)
	}
}
