package machine

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/lvm"
)

// volumeLook is between two looks at what LVM has: what is free, and what is left of VMs that have ended.
const volumeLook = 10 * time.Second

// KeepVolumes lets VMs have disks on LVM, and removes what an agent that was killed has left there, until ctx ends. A
// host whose volume group is not there runs VMs without volumes, and those that ask for one are told why; it is looked
// for again.
func (h *Host) KeepVolumes(ctx context.Context) {
	areas := h.Config().Areas
	if areas.Jobs.VolumeGroup == "" && areas.Cloud.VolumeGroup == "" {
		return
	}
	var faults journal.Repeated
	tick := time.NewTicker(volumeLook)
	defer tick.Stop()
	for ready := false; ; {
		var err error
		if !ready {
			err = h.Areas.UseVolumes(ctx, areas)
			ready = err == nil
		}
		if ready {
			err = h.Areas.CleanVolumes(ctx, h.volumeGone)
		}
		faults.Log(h.Log, "volumes of vms", err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// volumeGone logs what became of a volume whose VM has ended.
func (h *Host) volumeGone(v lvm.Volume, err error) {
	if err != nil {
		h.Log.Warn("a volume of a vm that has ended stays, and is tried again", "volume", v.Path(), "vm", v.VM,
			"error", err)
		return
	}
	h.Log.Info("removed a volume of a vm that has ended", "volume", v.Path(), "vm", v.VM)
}
