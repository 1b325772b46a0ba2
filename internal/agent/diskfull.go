package agent

import (
	"time"

	"github.com/grange-project/grange/internal/agent/machine"
)

// The hypervisor stops a VM's CPUs when the host's file system has no space for what its guest writes. Disks are
// promised before a VM starts, so something else has filled it. Of jobs' VMs one after the other ends, the first that
// was stopped first: its disks go, and those behind it may go on. Cloud VMs keep what they wrote, and wait for space.

const endOfFull = time.Minute // for a VM that ends to give its disks back

// noSpace deals with a machine that stands still for want of space.
func (a *watch) noSpace(machine string) {
	if v := a.Cloud.ByID(machine); v != nil {
		v.StandStill(true)
		return
	}
	a.full.Lock() // one at a time: the end of one may be space for the next
	defer a.full.Unlock()
	for _, v := range a.all() {
		if m := v.current(); m != nil && m.ID == machine {
			v.endFull(m)
		}
	}
}

// endFull ends the VM of jobs, unless there is space again.
func (v *vm) endFull(m *machine.Machine) {
	if v.agent.machines.SpaceAgain(m) {
		err := v.power.GoOn(m)
		if err == nil {
			v.log().Info("vm goes on, there is space again")
			return
		}
		v.log().Error("vm does not go on", "error", err)
	}
	v.log().Error("vm ends, its disks find no space on the host")
	v.cancel(v.agent.machines.DiskFull(m, "the VM could not write to its disks, and was ended"))
	select {
	case <-v.over:
	case <-time.After(endOfFull):
	case <-v.agent.ctx.Done():
	}
}
