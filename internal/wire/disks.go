package wire

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// Disks are a shape's disks on the wire; nil where they are as usual.
func Disks(d farm.Disks) *api.Disks {
	out := api.Disks{Root: uint64(d.Root), RootMode: string(d.RootMode), ScratchOn: string(d.ScratchOn)}
	for _, v := range d.Volumes {
		out.Volumes = append(out.Volumes, api.Volume{Path: v.Path, Size: uint64(v.Size), On: string(v.On)})
	}
	if d.Swap > 0 {
		out.Swap = (*uint64)(&d.Swap)
	}
	if d.MemoryPeak > 0 {
		out.MemoryPeak = (*uint64)(&d.MemoryPeak)
	}
	if out.Root == 0 && out.RootMode == "" && out.ScratchOn == "" && out.Volumes == nil && out.Swap == nil &&
		out.MemoryPeak == nil {
		return nil
	}
	return &out
}

// WithDisks is the shape with the disks of d in place of its own; nil changes nothing. Shape.Validate checks the rest.
func WithDisks(s farm.Shape, d *api.Disks) farm.Shape {
	if d == nil {
		return s
	}
	if d.Root != 0 {
		s.Disks.Root = farm.Bytes(d.Root)
	}
	if d.RootMode != "" {
		s.Disks.RootMode = farm.RootMode(d.RootMode)
		if d.RootMode == "overlay" {
			s.Disks.RootMode = farm.RootOverlay
		}
	}
	if d.ScratchOn != "" {
		s.Disks.ScratchOn = storage(d.ScratchOn)
	}
	if d.Volumes != nil {
		s.Disks.Volumes = nil
	}
	for _, v := range d.Volumes {
		s.Disks.Volumes = append(s.Disks.Volumes, farm.Volume{Path: v.Path, Size: farm.Bytes(v.Size),
			On: storage(v.On)})
	}
	if d.Swap != nil {
		s.Disks.Swap = farm.Bytes(*d.Swap)
	}
	if d.MemoryPeak != nil {
		s.Disks.MemoryPeak = farm.Bytes(*d.MemoryPeak)
	}
	return s
}

// storage is a storage by its word; Shape.Validate refuses what is none.
func storage(word string) farm.Storage {
	if word == "file" {
		return farm.OnFile
	}
	return farm.Storage(word)
}
