package farm

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Disks is what a shape has of disks beside Scratch. Its zero value: the root disk is an overlay of the image's size.
type Disks struct {
	Root       Bytes    // that the guest sees of its root disk; 0: as much as the image has
	RootMode   RootMode // how that is made
	ScratchOn  Storage  // where Shape.Scratch lies
	Volumes    []Volume // further scratch disks
	Swap       Bytes    // a disk that the guest swaps to
	MemoryPeak Bytes    // what a job may need for a while: what Memory lacks of it is swap, if Swap is not more
}

// Volume is a further scratch disk, empty at its VM's start.
type Volume struct {
	Path string // where the guest mounts it
	Size Bytes
	On   Storage
}

// RootMode is how the root disk of a full image is made.
type RootMode string

// Root modes.
const (
	RootOverlay RootMode = ""      // what the guest writes, over the image that all VMs read
	RootClone   RootMode = "clone" // a qcow2 with all of the image: no other VM reads what this one does
	RootRaw     RootMode = "raw"   // the same as a raw file: nothing is looked up, and blocks stay where they are
)

// Storage is where a scratch disk or swap lies.
type Storage string

// Storages.
const (
	OnFile   Storage = ""      // a sparse file, in the file system of the VMs' area
	OnVolume Storage = "lvm"   // a volume of the area's volume group
	OnThin   Storage = "thin"  // a volume of its thin pool
	InMemory Storage = "tmpfs" // the guest's own memory
)

// Limits of disks. mke2fs makes no file system of less than minDisk that holds anything.
const (
	maxVolumes = 8
	minDisk    = 16 * MiB
)

// DiskTexts are disks as people write them. An empty word leaves what the shape has.
type DiskTexts struct {
	Root       string   // SIZE, a mode, or both: "40G", "raw", "40G,clone"
	Scratch    string   // SIZE, with where it lies: "20G", "20G,thin"
	Volumes    []string // "/data=10G", "/data=10G,lvm"; nil: as the shape says
	Swap       string
	MemoryPeak string
}

// WithDisks is the shape with the words of t in place of its own. The error is a *Error of kind Invalid; Validate
// checks the rest.
func (s Shape) WithDisks(t DiskTexts) (_ Shape, err error) {
	if t.Root != "" {
		if s.Disks.Root, s.Disks.RootMode, err = parseRoot(t.Root); err != nil {
			return s, err
		}
	}
	if t.Scratch != "" {
		if s.Scratch, s.Disks.ScratchOn, err = parseStored(t.Scratch); err != nil {
			return s, err
		}
	}
	if t.Volumes != nil {
		s.Disks.Volumes = nil
	}
	for _, text := range t.Volumes {
		v, err := ParseVolume(text)
		if err != nil {
			return s, err
		}
		s.Disks.Volumes = append(s.Disks.Volumes, v)
	}
	for _, size := range []struct {
		text string
		to   *Bytes
	}{{t.Swap, &s.Disks.Swap}, {t.MemoryPeak, &s.Disks.MemoryPeak}} {
		if size.text == "" {
			continue
		}
		if *size.to, err = ParseBytes(size.text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// ParseVolume reads "/data=10G,thin".
func ParseVolume(text string) (v Volume, err error) {
	where, size, ok := strings.Cut(text, "=")
	if !ok {
		return v, badShape("a volume %q; write it as /data=10G or /data=10G,thin", text)
	}
	v.Path = where
	v.Size, v.On, err = parseStored(size)
	return v, err
}

func parseRoot(text string) (size Bytes, mode RootMode, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch m := RootMode(unless(word, "overlay")); {
		case slices.Contains(rootModes, m) && (m != "" || word == "overlay"):
			mode = m
		default:
			if size, err = ParseBytes(word); err != nil {
				return 0, "", badShape("a root disk %q; write a size, or overlay, clone or raw, or both as 40G,raw",
					text)
			}
		}
	}
	return size, mode, nil
}

func parseStored(text string) (Bytes, Storage, error) {
	sizeText, on, _ := strings.Cut(text, ",")
	size, err := ParseBytes(sizeText)
	return size, Storage(unless(on, "file")), err
}

var rootModes = []RootMode{RootOverlay, RootClone, RootRaw}

var storages = []Storage{OnFile, OnVolume, OnThin, InMemory}

func (m RootMode) String() string {
	if m == RootOverlay {
		return "overlay"
	}
	return string(m)
}

func (s Storage) String() string {
	if s == OnFile {
		return "file"
	}
	return string(s)
}

func (v Volume) String() string {
	text := v.Path + "=" + v.Size.String()
	if v.On != OnFile {
		text += "," + string(v.On)
	}
	return text
}

// Texts is what WithDisks reads, without what is as usual.
func (s Shape) Texts() DiskTexts {
	t := DiskTexts{Root: join(s.Disks.Root, string(s.Disks.RootMode)),
		Scratch: join(s.Scratch, string(s.Disks.ScratchOn)), Swap: join(s.Disks.Swap, ""),
		MemoryPeak: join(s.Disks.MemoryPeak, "")}
	for _, v := range s.Disks.Volumes {
		t.Volumes = append(t.Volumes, v.String())
	}
	return t
}

func join(size Bytes, word string) string {
	switch {
	case size == 0:
		return word
	case word == "":
		return size.String()
	}
	return size.String() + "," + word
}

// SwapSize is how much the guest has to swap to.
func (s Shape) SwapSize() Bytes {
	if s.Disks.MemoryPeak <= s.Memory {
		return s.Disks.Swap
	}
	return max(s.Disks.Swap, (s.Disks.MemoryPeak-s.Memory+MiB-1)&^(MiB-1))
}

// swapOn is where swap lies: beside scratch, and never in the memory that it is to spare.
func (s Shape) swapOn() Storage {
	if s.Disks.ScratchOn == InMemory {
		return OnFile
	}
	return s.Disks.ScratchOn
}

// ScratchDisk is one disk that is empty at its VM's start.
type ScratchDisk struct {
	Name string // of the file or volume, and the serial by which the guest finds it: "scratch", "scratch-1", "swap"
	Path string // where the guest mounts it; "" of swap
	Size Bytes
	On   Storage
}

// SwapName is the name of the disk that a guest swaps to.
const SwapName = "swap"

// ScratchDisks are all scratch disks of the shape, swap last.
func (s Shape) ScratchDisks() (all []ScratchDisk) {
	if s.Scratch > 0 {
		all = append(all, ScratchDisk{"scratch", "/tmp", s.Scratch, s.Disks.ScratchOn})
	}
	for i, v := range s.Disks.Volumes {
		all = append(all, ScratchDisk{fmt.Sprintf("scratch-%d", i+1), v.Path, v.Size, v.On})
	}
	if size := s.SwapSize(); size > 0 {
		all = append(all, ScratchDisk{SwapName, "", size, s.swapOn()})
	}
	return all
}

// DiskSpace is what the shape takes of a quota's disk space: the root disk where its size was asked for, and all
// scratch disks but those in memory.
func (s Shape) DiskSpace() Bytes {
	sum := s.Disks.Root
	for _, d := range s.ScratchDisks() {
		if d.On != InMemory {
			sum += d.Size
		}
	}
	return sum
}

func (s Shape) validateDisks() error {
	d := s.Disks
	switch {
	case !slices.Contains(rootModes, d.RootMode):
		return badShape("a root disk that is made by %q; there are overlay, clone and raw", d.RootMode)
	case d.Root > MaxScratch:
		return badShape("a root disk of %v", d.Root)
	case d.Swap > MaxScratch || d.MemoryPeak > MaxMemory:
		return badShape("%v of swap, for a peak of %v", d.Swap, d.MemoryPeak)
	case len(d.Volumes) > maxVolumes:
		return badShape("%d volumes; at most %d", len(d.Volumes), maxVolumes)
	}
	var inMemory, all Bytes
	for i, disk := range s.ScratchDisks() {
		switch {
		case !slices.Contains(storages, disk.On):
			return badShape("scratch on %q; there are file, lvm, thin and tmpfs", disk.On)
		case disk.Size > MaxScratch || disk.Name != "scratch" && disk.Size < minDisk && disk.On != InMemory:
			return badShape("%v of %s; the least is %v", disk.Size, disk.Name, minDisk)
		case disk.Path != "" && !mayMount(disk.Path, s.Scratch > 0 && disk.Name != "scratch"):
			return badShape("a volume at %q; it takes an absolute path outside of the system's directories", disk.Path)
		}
		for _, other := range s.ScratchDisks()[:i] {
			if disk.Path != "" && other.Path == disk.Path {
				return badShape("two volumes at %s", disk.Path)
			}
		}
		if all += disk.Size; disk.On == InMemory {
			inMemory += disk.Size
		}
	}
	if inMemory > s.Memory {
		return badShape("%v of scratch in %v of memory", inMemory, s.Memory)
	}
	if all > MaxScratch || s.DiskSpace() > MaxScratch {
		return badShape("%v of disks", s.DiskSpace())
	}
	return nil
}

// systemDirs are what a volume would hide, or be hidden by.
var systemDirs = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}

// mayMount reports whether a scratch disk may be mounted at a path. Below /tmp nothing is where /tmp is a disk.
func mayMount(p string, tmpIsDisk bool) bool {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 200 ||
		strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '=' }) {
		return false
	}
	first, _, _ := strings.Cut(p[1:], "/")
	return !slices.Contains(systemDirs, first) && !(first == "tmp" && tmpIsDisk)
}
