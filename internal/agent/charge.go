package agent

import (
	"maps"
	"slices"

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
	out.UID, out.Limited = r.Caller.UID, !ours
	return out
}

// excepted is a caller as exceptions from [limits] see it. They are for those whom the name service knows: while it is
// down the limits of all hold.
func (a requests) excepted(c Caller) policy.Who {
	w := policy.Who{UID: c.UID, GIDs: c.allGroups()}
	if known, err := a.namesOf(c); err == nil {
		w.User, w.Groups = known.user.Name, slices.Collect(maps.Values(known.groups))
	} else {
		a.log.Warn("no exception from [limits] by name: the name service does not answer", "uid", c.UID, "error", err)
	}
	return w
}
