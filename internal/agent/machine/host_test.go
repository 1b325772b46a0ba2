package machine

import (
	"testing"

	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestDiskNeed(t *testing.T) {
	full := vmimage.Image{Kind: vmimage.Disk, VirtualSize: 10 * farm.GiB}
	for _, c := range []struct {
		image                  vmimage.Image
		scratch, overlay, want farm.Bytes
	}{
		{vmimage.Image{Kind: vmimage.Kernel}, 0, farm.GiB, 0},
		{vmimage.Image{Kind: vmimage.Kernel}, farm.GiB, 0, farm.GiB},
		{full, farm.GiB, 0, farm.GiB + disk.OverlayBound(10*farm.GiB)},
		{full, farm.GiB, 2 * farm.GiB, 3 * farm.GiB},
		{full, 0, 20 * farm.GiB, disk.OverlayBound(10 * farm.GiB)},
	} {
		if got := DiskNeed(c.image, c.scratch, c.overlay); got != c.want {
			t.Errorf("%v + %v: %v, not %v", c.scratch, c.overlay, got, c.want)
		}
	}
}
