package cloud

import (
	"context"
	"errors"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

var errUnwanted = errors.New("the VM is not wanted on any more")

// fetchImage finds the image of a VM that is to get fresh disks, and brings it to this host where the catalogue has it.
// People see how far that is; it ends when they do not want the VM on any more.
func fetchImage(v *VM, w fleet.WantedVM) (vmimage.Image, error) {
	if w.Digest == "" {
		return v.host.images.Get(w.Image)
	}
	ctx, cancel := context.WithCancelCause(v.host.ctx)
	defer cancel(nil)
	err := v.host.Images.Ensure(ctx, w.Digest, func(p vmimage.Progress) {
		if now, _ := v.newest(); farm.Power(now.Power) != farm.PowerOn {
			cancel(errUnwanted)
		}
		if p.Step != "" {
			v.is(farm.VMStarting, "image "+w.Image+": "+p.String())
		}
	})
	if err != nil {
		return vmimage.Image{}, err
	}
	return v.host.images.Get(w.Digest)
}
