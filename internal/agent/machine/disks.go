package machine

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

// RootNeed is what a VM's root disk may take of the host: as much as it shows its guest. An overlay that nobody asked
// a size for takes no more than overlay, where that is not 0.
func RootNeed(image vmimage.Image, s farm.Shape, overlay farm.Bytes) farm.Bytes {
	if image.Kind != vmimage.Disk {
		return 0
	}
	bound := disk.OverlayBound(max(image.VirtualSize, s.Disks.Root))
	if overlay > 0 && s.Disks.Root == 0 && s.Disks.RootMode == farm.RootOverlay {
		bound = min(bound, overlay)
	}
	return bound
}

// DiskNeed is what a VM's disks may take of the file system of disks.
func DiskNeed(image vmimage.Image, s farm.Shape, overlay farm.Bytes) farm.Bytes {
	need := RootNeed(image, s, overlay)
	for _, d := range s.ScratchDisks() {
		if d.On == farm.OnFile {
			need += d.Size
		}
	}
	return need
}

// CheckRoot refuses a root disk that an image cannot have.
func CheckRoot(image vmimage.Image, s farm.Shape) error {
	switch {
	case image.Kind == vmimage.Disk && s.Disks.Root != 0 && s.Disks.Root < image.VirtualSize:
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: fmt.Sprintf("image %s needs a root disk of %v, and %v was asked for", image.Name,
				image.VirtualSize, s.Disks.Root), Hint: "ask for a larger root disk, or choose a smaller image"}
	case image.Kind != vmimage.Disk && (s.Disks.Root != 0 || s.Disks.RootMode != farm.RootOverlay):
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadShape,
			Message: fmt.Sprintf("image %s has no root disk: what it writes is kept in memory, or on scratch",
				image.Name), Hint: "ask for scratch (--scratch SIZE) instead of a root disk, or use a full image"}
	}
	return nil
}

// MakeRoot makes the root disk of a VM from a full image.
func (h *Host) MakeRoot(ctx context.Context, m *Machine, image vmimage.Image, s farm.Shape) (hyper.Disk, error) {
	_, err := m.Pool().Root(ctx, m.Name, disk.Base{Path: image.Disk(), Format: image.Format, Size: image.VirtualSize},
		s.Disks.RootMode, s.Disks.Root)
	return RootDisk(m, image, s), err
}

// RootDisk is the root disk that MakeRoot makes.
func RootDisk(m *Machine, image vmimage.Image, s farm.Shape) hyper.Disk {
	root := disk.RootOf(m.Disks, s.Disks.RootMode, image.Disk())
	return hyper.Disk{Serial: "root", Path: root.Path, Format: root.Format, Base: root.Base}
}

// MakeScratch makes the scratch disks of a VM, and its swap.
func (h *Host) MakeScratch(ctx context.Context, m *Machine, s farm.Shape) ([]hyper.Disk, error) {
	for _, d := range s.ScratchDisks() {
		if d.On == farm.InMemory {
			continue
		}
		if _, err := m.Pool().ScratchDisk(ctx, m.Name, d); err != nil {
			return nil, err
		}
	}
	return ScratchDisks(m, s), nil
}

// ScratchDisks are the disks that MakeScratch makes.
func ScratchDisks(m *Machine, s farm.Shape) (disks []hyper.Disk) {
	for _, d := range s.ScratchDisks() {
		if d.On != farm.InMemory {
			disks = append(disks, hyper.Disk{Serial: d.Name, Path: filepath.Join(m.Disks, disk.FileOf(d)),
				Format: "raw", Block: d.On != farm.OnFile})
		}
	}
	return disks
}

// GuestDisks is what a guest is told of a shape's scratch disks: the serial of the one at /tmp, which every
// grange-guest knows, and the others.
func GuestDisks(s farm.Shape) (scratch string, others []guest.Disk) {
	for _, d := range s.ScratchDisks() {
		switch {
		case d.On == farm.InMemory:
			others = append(others, guest.Disk{Path: d.Path, Size: uint64(d.Size)})
		case d.Name == ScratchSerial:
			scratch = d.Name
		default:
			others = append(others, guest.Disk{Serial: d.Name, Path: d.Path})
		}
	}
	return scratch, others
}

// CheckGuest refuses a guest that is up and cannot mount the VM's disks: a job would write elsewhere than it asked to;
// and one that cannot set up IPv6, where the VM has it.
func (m *Machine) CheckGuest(s farm.Shape, ip6 bool) error {
	if ip6 && !m.Control.takesIPv6() {
		return &farm.Error{Kind: farm.Invalid, Code: CodeOldGuest,
			Message: "the grange-guest in the image is of an earlier release: it sets up no IPv6",
			Hint:    "build the image again: `grange image build micro`"}
	}
	if _, others := GuestDisks(s); len(others) == 0 || m.Control.TakesDisks() {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeOldGuest,
		Message: "the grange-guest in the image is of an earlier release: it mounts no volumes, and does not swap",
		Hint:    "build the image again: `grange image build micro`; or ask for no volumes and no swap"}
}

// DiskTuning is how disks of a purpose are reached on this host.
func (h *Host) DiskTuning(p farm.Purpose) hyper.DiskTuning {
	return hyper.DiskTuning(h.Config().Disks.Of(p))
}
