package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/disk"
)

// TestOutgrown: a VM whose overlay takes more than was promised to it ends, with the reason; others go on.
func TestOutgrown(t *testing.T) {
	f := newFarmhouse(t)
	f.agent.jobs.Go(f.agent.watch.watchDisks)
	other := f.mustAsk(f.caller(""), api.JobRequest{})
	other.until(api.EventRunning)
	task := f.mustAsk(f.caller(""), api.JobRequest{})
	vm := task.until(api.EventRunning)
	dir := filepath.Join(f.agent.machines.DisksDir(), vm.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// the micro image has none at all
	if err := os.WriteFile(filepath.Join(dir, disk.OverlayFile), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := task.lost(); p.Type != "grange:"+string(CodeDiskBound) || !strings.Contains(p.Detail, "1M") {
		t.Errorf("%+v", p)
	}
	<-task.job.over
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its disks stay: %v", err)
	}
	if v := f.agent.vmMadeFor(other.id); v == nil || v.ctx.Err() != nil {
		t.Error("the other VM ended as well")
	}
}
