package agent

import (
	"maps"
	"slices"

	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/vmimage"
)

// diskNeed is what a VM's disks may take: all of its scratch disk, and of the overlay of a full image as much as the
// image's size, or what the host lets an overlay have.
func diskNeed(image vmimage.Image, scratch, overlay farm.Bytes) farm.Bytes {
	if image.Kind != vmimage.Disk {
		return scratch
	}
	bound := disk.OverlayBound(image.VirtualSize)
	if overlay > 0 {
		bound = min(bound, overlay)
	}
	return scratch + bound
}

// charge is what the VM of a job is charged.
func (v *vm) charge(image vmimage.Image) ledger.Charge {
	r := v.recordNow()
	ours := v.own || r.Worker != nil || r.Caller.Batch.System != "" || r.Caller.admin()
	return ledger.Charge{Disks: vmName(v.id), Bytes: diskNeed(image, r.Shape.Scratch, v.agent.config().Overlay),
		UID: r.Caller.UID, Limited: !ours}
}

// excepted is a caller as exceptions from [limits] see it. They are for those whom the name service knows: while it is
// down the limits of all hold.
func (a *Agent) excepted(c Caller) policy.Who {
	w := policy.Who{UID: c.UID, GIDs: c.allGroups()}
	if known, err := a.namesOf(c); err == nil {
		w.User, w.Groups = known.user.Name, slices.Collect(maps.Values(known.groups))
	} else {
		a.log.Warn("no exception from [limits] by name: the name service does not answer", "uid", c.UID, "error", err)
	}
	return w
}

// charge is what a cloud VM is charged. What its owner may have is its project's quota.
func (v *fleetVM) charge(image vmimage.Image, shape farm.Shape) ledger.Charge {
	return ledger.Charge{Disks: v.name, Bytes: diskNeed(image, shape.Scratch, 0)}
}

// imageOf is the image that a VM was made from; one that is not known any more counts as one without a disk.
func (a *Agent) imageOf(digest string) vmimage.Image {
	image, err := a.images.Get(digest)
	if err != nil {
		return vmimage.Image{Kind: vmimage.Kernel}
	}
	return image
}
