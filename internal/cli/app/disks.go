package app

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// DiskFlags are the flags of a VM's disks.
type DiskFlags struct {
	disk, swap, peak string
	scratch          []string
}

// Register adds the flags to a command's.
func (f *DiskFlags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.disk, "disk", "",
		"`SIZE` of the root disk of a full image, how it is made (overlay, clone or raw), or both: 40G,raw (default: an "+
			"overlay of the image's size)")
	flags.StringArrayVar(&f.scratch, "scratch", nil,
		"`SIZE` of a scratch disk for /tmp, or PATH=SIZE of one more; with where it lies: 20G, 20G,thin, /data=10G,lvm "+
			"(file, lvm, thin or tmpfs; repeatable)")
	flags.StringVar(&f.swap, "swap", "", "`SIZE` of a disk to swap to")
	flags.StringVar(&f.peak, "memory-peak", "",
		"`SIZE` of memory that the job needs for a while: swap makes up for what --memory lacks")
}

// Read returns what was said: the size of the scratch disk, nil where nothing was, and the other disks.
func (f *DiskFlags) Read() (scratch *uint64, disks *api.Disks, err error) {
	t := farm.DiskTexts{Root: f.disk, Swap: f.swap, MemoryPeak: f.peak}
	for _, text := range f.scratch {
		switch {
		case strings.HasPrefix(text, "/"):
			t.Volumes = append(t.Volumes, text)
		case t.Scratch != "":
			return nil, nil, Usage("--scratch /PATH=SIZE for a further one", "two scratch disks for /tmp: %s and %s",
				t.Scratch, text)
		default:
			t.Scratch = text
		}
	}
	s, err := farm.Shape{}.WithDisks(t)
	if err != nil {
		return nil, nil, err
	}
	if t.Scratch != "" {
		scratch = (*uint64)(&s.Scratch)
	}
	disks = wire.Disks(s.Disks)
	if disks == nil && (f.swap != "" || f.peak != "" || f.disk != "" || t.Scratch != "") {
		disks = &api.Disks{}
	}
	if disks == nil {
		return nil, nil, nil
	}
	f.explicit(disks, s, t)
	return scratch, disks, nil
}

// explicit says what was said and is the usual, so that it goes before what a shape says: a swap of 0, an overlay, a
// scratch disk in a file.
func (f *DiskFlags) explicit(d *api.Disks, s farm.Shape, t farm.DiskTexts) {
	if f.swap != "" {
		d.Swap = (*uint64)(&s.Disks.Swap)
	}
	if f.peak != "" {
		d.MemoryPeak = (*uint64)(&s.Disks.MemoryPeak)
	}
	if f.disk != "" && strings.Contains(f.disk, "overlay") {
		d.RootMode = s.Disks.RootMode.String()
	}
	if strings.Contains(t.Scratch, ",") {
		d.ScratchOn = s.Disks.ScratchOn.String()
	}
}
