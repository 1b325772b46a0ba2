package vmimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// maxVirtual bounds what a guest may see of one disk: more is a hostile or damaged header.
const maxVirtual = 64 * farm.TiB

const (
	// No hint names a program to run on the file: outside of the sandbox it would open, as root, the files of the host
	// that a hostile disk names, and put them into the disk.
	exportHint = "export it as qcow2 or raw where it was made. Do not convert it on a host: a converter opens the " +
		"files that a disk names, with the rights of its caller"
	cryptHint = "export it without encryption where it was made"
	packHint  = "grange unpacks gzip, xz and zstd: pack it with one of these, or not at all"
	copyHint  = "copy the file again from where it was made"
	plainHint = "give the disk in it, as qcow2 or raw, from where it was made"
	rawHint   = "grange takes qcow2, vmdk, vdi, vhdx and vpc, and raw disks with a partition table or a file system"
)

// knownMagic are the formats that people have, and that no VM is given as they are. Some become a disk on their way
// into the store: see normal.go.
var knownMagic = []struct {
	at         int64 // negative: from the end of the file
	magic      string
	what, hint string
}{
	{0, "KDMV", "a VMware disk (VMDK)", exportHint},
	{0, "COWD", "a VMware disk (VMDK)", exportHint},
	{0, "# Disk DescriptorFile", "a VMware disk's description (VMDK)", exportHint},
	{0x40, "\x7f\x10\xda\xbe", "a VirtualBox disk (VDI)", exportHint},
	{0, "vhdxfile", "a Hyper-V disk (VHDX)", exportHint},
	{0, "conectix", "a Virtual PC disk (VHD)", exportHint},
	{-512, "conectix", "a Virtual PC disk (VHD)", exportHint},
	{-512, "koly", "a macOS disk (DMG)", exportHint},
	{0, "QED\x00", "a QED disk", exportHint},
	{0, "WithoutFreeSpace", "a Parallels disk", exportHint},
	{0, "WithouFreSpacExt", "a Parallels disk", exportHint},
	{0, "Bochs Virtual HD Image", "a Bochs disk", exportHint},
	{0, "LUKS\xba\xbe", "an encrypted disk (LUKS)", cryptHint},
	{0x8001, "CD001", "a CD image (ISO 9660)", "install from it once and import the disk that was installed"},
	{0, "\x1f\x8b", "compressed with gzip", twice},
	{0, "\xfd7zXZ\x00", "compressed with xz", twice},
	{0, "\x28\xb5\x2f\xfd", "compressed with zstd", twice},
	{0, "\x04\x22\x4d\x18", "compressed with lz4", packHint},
	{0, "BZh", "compressed with bzip2", packHint},
	{0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive", plainHint},
	{0, "PK\x03\x04", "a ZIP archive", plainHint},
	{257, "ustar", "a tar archive (an OVA?)", plainHint},
	{0, "\x7fELF", "a program or a kernel",
		"import the directory that has the kernel as vmlinux or vmlinuz, and its initrd"},
}

// diskMagic are signs of something that a guest can use as a disk.
var diskMagic = []struct {
	at    int64
	magic string
}{
	{510, "\x55\xaa"},          // MBR, FAT
	{512, "EFI PART"},          // GPT
	{4096, "EFI PART"},         // GPT with sectors of 4 KiB
	{1080, "\x53\xef"},         // ext2, ext3, ext4
	{0, "XFSB"},                // XFS
	{0x10040, "_BHRfS_M"},      // btrfs
	{0, "hsqs"},                // squashfs
	{1024, "\xe2\xe1\xf5\xe0"}, // erofs
	{536, "LVM2 001"},          // LVM, label in the second sector
}

// header is what the start of a disk file says of it.
type header struct {
	format  string // "qcow2" or "raw"
	virtual farm.Bytes
}

// readHeader reads what the file says of itself and refuses what could hurt the host or can never run: references to
// other files above all. It looks at every table that QEMU would follow. The error is a *farm.Error of
// farm.CodeBadImage.
func readHeader(r io.ReaderAt, size int64) (header, error) {
	has := func(at int64, magic string) bool {
		if at < 0 {
			at += size
		}
		b := make([]byte, len(magic))
		if at < 0 {
			return false
		}
		_, err := r.ReadAt(b, at)
		return (err == nil || errors.Is(err, io.EOF)) && string(b) == magic
	}
	if has(0, "QFI\xfb") {
		virtual, err := readQcow2(r, size)
		return header{"qcow2", virtual}, err
	}
	for _, k := range knownMagic {
		if has(k.at, k.magic) {
			return header{}, badImage("the file is "+k.what+extents(r, size), k.hint, nil)
		}
	}
	switch {
	case size == 0:
		return header{}, badImage("the file is empty", rawHint, nil)
	case size%512 != 0:
		return header{}, badImage(fmt.Sprintf("the file is not a disk: its size, %d bytes, is not a multiple of 512", size),
			rawHint, nil)
	case farm.Bytes(size) > maxVirtual:
		return header{}, badImage("the disk is larger than "+maxVirtual.String(), rawHint, nil)
	}
	for _, d := range diskMagic {
		if has(d.at, d.magic) {
			return header{"raw", farm.Bytes(size)}, nil
		}
	}
	return header{}, badImage("the file has no partition table and no file system that grange knows", rawHint, nil)
}

// Limits of QEMU 7.2 and later (block/qcow2.h); a file beyond them was not made by qemu-img.
const (
	maxL1Bytes       = 32 << 20
	maxRefcountBytes = 8 << 20
	maxSnapshots     = 65536
	maxSnapshotBytes = 64 << 20
)

// Incompatible features of qcow2 (docs/interop/qcow2.txt).
const (
	featureDirty       = 1 << 0
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3
	featureExtendedL2  = 1 << 4
	featuresKnown      = featureCompression | featureExtendedL2
)

// qcow2 is the fixed part of the header, in the order of the file, big endian.
type qcow2 struct {
	Magic                 uint32
	Version               uint32
	BackingOffset         uint64
	BackingSize           uint32
	ClusterBits           uint32
	Size                  uint64
	Crypt                 uint32
	L1Size                uint32
	L1Offset              uint64
	RefcountOffset        uint64
	RefcountClusters      uint32
	Snapshots             uint32
	SnapshotsOffset       uint64
	Incompatible          uint64 // from here on version 3
	Compatible, Autoclear uint64
	RefcountOrder         uint32
	HeaderLength          uint32
}

const (
	v2Length = 72
	v3Length = 104
)

func readQcow2(r io.ReaderAt, size int64) (virtual farm.Bytes, err error) {
	// The whole struct is read always; of version 2 the tail is something else, and put right below.
	start := make([]byte, v3Length)
	if n, err := r.ReadAt(start, 0); n < v2Length {
		return 0, damaged("the header is cut short", err)
	}
	var h qcow2
	if err := binary.Read(bytes.NewReader(start), binary.BigEndian, &h); err != nil {
		return 0, damaged("the header is cut short", err)
	}
	switch h.Version {
	case 2:
		h.Incompatible, h.RefcountOrder, h.HeaderLength = 0, 4, v2Length
	case 3:
	default:
		return 0, badImage(fmt.Sprintf("the file is a qcow of version %d", h.Version),
			exportHint, nil)
	}
	// Fields that could make QEMU open other files of the host are checked first.
	if h.BackingOffset != 0 || h.BackingSize != 0 {
		return 0, badImage("the disk builds on another file (it has a backing file)"+backingName(r, h),
			exportHint, nil)
	}
	if h.Incompatible&featureDataFile != 0 {
		return 0, badImage("the disk keeps its data in another file",
			exportHint, nil)
	}
	if h.Crypt != 0 {
		return 0, badImage("the disk is encrypted", cryptHint, nil)
	}
	if h.Incompatible&(featureDirty|featureCorrupt) != 0 {
		return 0, badImage("the disk was not closed cleanly, or is marked as corrupt",
			"shut its VM down where it was made, and copy the disk again", nil)
	}
	if h.Incompatible&^featuresKnown != 0 {
		return 0, badImage(fmt.Sprintf("the disk needs features that grange does not know (%#x)",
			h.Incompatible&^featuresKnown), exportHint, nil)
	}
	if h.ClusterBits < 9 || h.ClusterBits > 21 {
		return 0, damaged(fmt.Sprintf("clusters of 2^%d bytes", h.ClusterBits), nil)
	}
	f := qcow2File{r, size, int64(1) << h.ClusterBits}
	entry := int64(8)
	if h.Incompatible&featureExtendedL2 != 0 {
		entry = 16
	}
	perL1 := uint64(f.cluster) * uint64(f.cluster/entry) // bytes of disk that one L1 entry stands for
	switch {
	case h.Size == 0 || h.Size%512 != 0 || farm.Bytes(h.Size) > maxVirtual:
		return 0, damaged(fmt.Sprintf("a disk of %d bytes", h.Size), nil)
	case h.HeaderLength < v2Length || h.Version == 3 && h.HeaderLength < v3Length || h.HeaderLength%8 != 0 ||
		int64(h.HeaderLength) > f.cluster:
		return 0, damaged(fmt.Sprintf("a header of %d bytes", h.HeaderLength), nil)
	case h.RefcountOrder > 6:
		return 0, damaged(fmt.Sprintf("reference counts of 2^%d bits", h.RefcountOrder), nil)
	case uint64(h.L1Size)*8 > maxL1Bytes:
		return 0, damaged("its first-level table is too large", nil)
	case uint64(h.L1Size)*perL1 < h.Size:
		return 0, damaged("its first-level table is too small for the disk", nil)
	case h.RefcountClusters == 0 || int64(h.RefcountClusters)*f.cluster > maxRefcountBytes:
		return 0, damaged("the size of its reference count table", nil)
	case h.RefcountOffset == 0 || !f.holds(h.RefcountOffset, int64(h.RefcountClusters)*f.cluster):
		return 0, cutShort("its reference count table")
	case h.L1Offset == 0 || !f.holds(h.L1Offset, int64(h.L1Size)*8):
		return 0, cutShort("its first-level table")
	}
	if err := f.extensions(int64(h.HeaderLength)); err != nil {
		return 0, err
	}
	if err := f.refcounts(h); err != nil {
		return 0, err
	}
	if err := f.snapshots(h); err != nil {
		return 0, err
	}
	return farm.Bytes(h.Size), f.mapping(h, entry)
}

// qcow2File reads the tables that a header points to.
type qcow2File struct {
	r       io.ReaderAt
	size    int64
	cluster int64
}

// holds reports whether a table of n bytes fits the file at a cluster boundary.
func (f qcow2File) holds(at uint64, n int64) bool {
	return at%uint64(f.cluster) == 0 && f.inside(at, n)
}

func (f qcow2File) inside(at uint64, n int64) bool {
	return at <= uint64(f.size) && n <= f.size-int64(at)
}

// table reads n big-endian words.
func (f qcow2File) table(at uint64, n int64) ([]uint64, error) {
	b := make([]byte, n*8)
	if _, err := f.r.ReadAt(b, int64(at)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.BigEndian.Uint64(b[i*8:])
	}
	return words, nil
}

// backingName quotes the file that a disk builds on, as far as it can be read.
func backingName(r io.ReaderAt, h qcow2) string {
	name := make([]byte, min(h.BackingSize, 200))
	n, _ := r.ReadAt(name, int64(h.BackingOffset&(1<<62-1)))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(": %q", farm.Printable(string(name[:n])))
}

// extensions looks through the header extensions, which end within the first cluster.
func (f qcow2File) extensions(at int64) error {
	b := make([]byte, min(f.cluster, f.size)-at)
	if _, err := f.r.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return damaged("its header cannot be read", err)
	}
	for len(b) >= 8 {
		kind, n := binary.BigEndian.Uint32(b), int64(binary.BigEndian.Uint32(b[4:]))
		switch kind {
		case 0:
			return nil
		case 0x44415441: // "DATA"
			return badImage("the disk names a file that keeps its data",
				exportHint, nil)
		case 0x0537be77:
			return badImage("the disk is encrypted", cryptHint, nil)
		}
		n = (n + 7) &^ 7
		if n > int64(len(b))-8 {
			return damaged("a header extension is longer than the header", nil)
		}
		b = b[8+n:]
	}
	return nil
}

// refcounts checks that the blocks of the reference count table are in the file.
func (f qcow2File) refcounts(h qcow2) error {
	blocks, err := f.table(h.RefcountOffset, int64(h.RefcountClusters)*f.cluster/8)
	if err != nil {
		return damaged("its reference count table cannot be read", err)
	}
	for _, b := range blocks {
		if b&0x1ff != 0 || b != 0 && !f.holds(b, f.cluster) {
			return cutShort("a block of reference counts")
		}
	}
	return nil
}

// snapshots walks the table of internal snapshots: entries of 40 bytes, with three strings behind each.
func (f qcow2File) snapshots(h qcow2) error {
	if h.Snapshots == 0 {
		return nil
	}
	if h.Snapshots > maxSnapshots || h.SnapshotsOffset == 0 || h.SnapshotsOffset%uint64(f.cluster) != 0 {
		return damaged("its table of snapshots", nil)
	}
	at := h.SnapshotsOffset
	for range h.Snapshots {
		var b [40]byte
		if !f.inside(at, 40) {
			return cutShort("its table of snapshots")
		}
		if _, err := f.r.ReadAt(b[:], int64(at)); err != nil && !errors.Is(err, io.EOF) {
			return damaged("its table of snapshots cannot be read", err)
		}
		l1, l1Size := binary.BigEndian.Uint64(b[0:]), binary.BigEndian.Uint32(b[8:])
		id, name, extra := binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(
			b[14:]), binary.BigEndian.Uint32(b[36:])
		if extra > 1024 || uint64(l1Size)*8 > maxL1Bytes || l1Size != 0 && !f.holds(l1, int64(l1Size)*8) {
			return damaged("a snapshot", nil)
		}
		n := 40 + int64(id) + int64(name) + int64(extra)
		if !f.inside(at, n) || at-h.SnapshotsOffset > maxSnapshotBytes {
			return cutShort("its table of snapshots")
		}
		at += uint64(n+7) &^ 7 // the file may end before the last entry's padding
	}
	return nil
}

const offsetMask = 0x00fffffffffffe00 // bits 9 to 55 of a table entry

// mapping follows both levels of tables and checks that the data they lead to is in the file. It reads at most the file
// once: a second-level table that is used twice is refused.
func (f qcow2File) mapping(h qcow2, entry int64) error {
	l1, err := f.table(h.L1Offset, int64(h.L1Size))
	if err != nil {
		return damaged("its first-level table cannot be read", err)
	}
	tables := l1[:0]
	for _, e := range l1 {
		if at := e & offsetMask; at != 0 {
			if !f.holds(at, f.cluster) {
				return cutShort("a second-level table")
			}
			tables = append(tables, at)
		}
	}
	slices.Sort(tables)
	for i, at := range tables {
		if i > 0 && at == tables[i-1] {
			return damaged("a second-level table is used twice", nil)
		}
		l2, err := f.table(at, f.cluster/8)
		if err != nil {
			return damaged("a second-level table cannot be read", err)
		}
		for i := 0; i < len(l2); i += int(entry / 8) {
			data := l2[i] & offsetMask
			if l2[i]&(1<<62) != 0 { // compressed: the offset has 62-(cluster bits-8) bits and needs no alignment
				data = l2[i] & (1<<(62-(h.ClusterBits-8)) - 1)
			} else if data%uint64(f.cluster) != 0 {
				return damaged("data that is not where a cluster begins", nil)
			}
			// The file may end within its last cluster.
			if data >= uint64(f.size) {
				return cutShort("data")
			}
		}
	}
	return nil
}

func badImage(message, hint string, err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadImage, Message: message, Hint: hint, Err: err}
}

// damaged is a qcow2 that no program should have written.
func damaged(what string, err error) error {
	return badImage("the qcow2 header is damaged: "+what,
		copyHint, err)
}

// cutShort is a qcow2 that speaks of what is not in the file.
func cutShort(what string) error {
	return badImage("the qcow2 file is cut short or damaged: "+what+" is not in it",
		"copy the file again, and compare its size and checksum", nil)
}
