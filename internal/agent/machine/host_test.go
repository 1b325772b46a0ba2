package machine

import (
	"testing"

	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestDiskNeed(t *testing.T) {
	full := vmimage.Image{Kind: vmimage.Disk, VirtualSize: 10 * farm.GiB}
	kernel := vmimage.Image{Kind: vmimage.Kernel}
	for _, c := range []struct {
		image         vmimage.Image
		shape         farm.Shape
		overlay, want farm.Bytes
	}{
		{kernel, farm.Shape{}, farm.GiB, 0},
		{kernel, farm.Shape{Scratch: farm.GiB}, 0, farm.GiB},
		{full, farm.Shape{Scratch: farm.GiB}, 0, farm.GiB + disk.OverlayBound(10*farm.GiB)},
		{full, farm.Shape{Scratch: farm.GiB}, 2 * farm.GiB, 3 * farm.GiB},
		{full, farm.Shape{}, 20 * farm.GiB, disk.OverlayBound(10 * farm.GiB)},
		{full, farm.Shape{Disks: farm.Disks{Root: 40 * farm.GiB}}, 2 * farm.GiB, disk.OverlayBound(40 * farm.GiB)},
		{full, farm.Shape{Disks: farm.Disks{RootMode: farm.RootClone}}, farm.GiB, disk.OverlayBound(10 * farm.GiB)},
		{kernel, farm.Shape{Scratch: farm.GiB, Memory: 2 * farm.GiB, Disks: farm.Disks{ScratchOn: farm.OnThin,
			MemoryPeak: 5 * farm.GiB, Volumes: []farm.Volume{{Path: "/data", Size: 7 * farm.GiB},
				{Path: "/fast", Size: farm.GiB, On: farm.InMemory}}}}, 0, 7 * farm.GiB},
		{kernel, farm.Shape{Memory: 2 * farm.GiB, Disks: farm.Disks{Swap: farm.GiB, MemoryPeak: 5 * farm.GiB}}, 0,
			3 * farm.GiB},
	} {
		if got := DiskNeed(c.image, c.shape, c.overlay); got != c.want {
			t.Errorf("%+v: %v, not %v", c.shape, got, c.want)
		}
	}
}

// TestCheckRoot: a root disk that no image of its kind can have is refused before anything is made.
func TestCheckRoot(t *testing.T) {
	full := vmimage.Image{Name: "debian", Kind: vmimage.Disk, VirtualSize: 10 * farm.GiB}
	kernel := vmimage.Image{Name: "micro", Kind: vmimage.Kernel}
	for _, c := range []struct {
		image vmimage.Image
		disks farm.Disks
		want  farm.Code
	}{
		{full, farm.Disks{}, ""},
		{full, farm.Disks{Root: 20 * farm.GiB, RootMode: farm.RootRaw}, ""},
		{full, farm.Disks{Root: farm.GiB}, farm.CodeTooBig},
		{kernel, farm.Disks{Swap: farm.GiB}, ""},
		{kernel, farm.Disks{Root: farm.GiB}, farm.CodeBadShape},
		{kernel, farm.Disks{RootMode: farm.RootClone}, farm.CodeBadShape},
	} {
		err := CheckRoot(c.image, farm.Shape{Disks: c.disks})
		if c.want == "" && err != nil || c.want != "" && !farm.IsCode(err, c.want) {
			t.Errorf("%s with %+v: %v, want code %q", c.image.Name, c.disks, err, c.want)
		}
	}
}
