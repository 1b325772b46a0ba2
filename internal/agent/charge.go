package agent

import (
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/vmimage"
)

// charge is what the VM of a job is charged.
func (v *vm) charge(image vmimage.Image) ledger.Charge {
	r := v.recordNow()
	ours := v.own || r.Worker != nil || r.Caller.Batch.System != "" || r.Caller.admin()
	c := v.agent.config()
	out := machine.DiskCharge(vmName(v.id), ledger.JobFiles, image, r.Shape, c.Overlay, machine.VolumesOf(c.Areas.Jobs))
	out.UID, out.Limited, out.Owner = r.Caller.charged(), !ours, r.Caller.User()
	return out
}

// excepted is a caller as exceptions from [limits] see it. They are for those whom the name service knows: while it is
// down the limits of all hold.
func (a requests) excepted(c Caller) policy.Who {
	known, err := a.namesOf(c)
	if err != nil {
		a.log.Warn("no exception from [limits] by name: the name service does not answer", "uid", c.User(), "error", err)
		return policy.Who{UID: c.User(), GIDs: append([]uint32{c.GID}, c.Groups...)}
	}
	return known.Who()
}
