package agent

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
)

// diskLook is between two looks at overlays that may take less than their images' sizes, and at VMs that wait for
// space.
const diskLook = time.Second

// watchDisks ends VMs of jobs whose overlays have outgrown what was promised to them: others were promised the rest. An
// overlay that may have its image's size cannot outgrow it. cloud VMs that wait for space go on when there is
// some.
func (a *watch) watchDisks() {
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for {
		for _, v := range a.Cloud.All() {
			v.GoOn()
		}
		for _, v := range a.all() {
			err := v.agent.drains.Overdue(v.uses(), time.Now())
			if err != nil && v.ctx.Err() == nil && v.recordNow().Plan.VCPUs != nil { // others wait for the drain's end
				v.log().Warn("vm ends: a file system of its directories is drained", "error", err)
				v.cancel(err)
			}
			if err := v.outgrown(); err != nil && v.ctx.Err() == nil {
				v.log().Warn("vm ends: its overlay is too large", "error", err)
				v.cancel(err)
			}
		}
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
	}
}

// outgrown is an error when the VM's overlay takes more than it may.
func (v *vm) outgrown() error {
	m, r := v.current(), v.recordNow()
	if m == nil {
		return nil
	}
	may := machine.RootNeed(v.agent.machines.ImageOf(r.Digest), r.Shape, v.agent.config().Overlay)
	used := v.agent.machines.Areas.Jobs.RootUse(m.Name)
	if used <= may {
		return nil
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeDiskBound,
		Hint: "write large files to scratch space or to a bound directory; `overlay` in the agent's configuration is " +
			"the bound",
		Message: fmt.Sprintf("the VM was ended: its root disk has taken %v of the host, and may take %v",
			used.Rounded(), may.Rounded())}
}
