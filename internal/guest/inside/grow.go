package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// growRoot has the root file system of a full image take all of its disk, which may be larger than the image: first
// its partition, then the file system, while it is in use. cloud-init does the same where its image has growpart; what
// it did is left as it is. Nothing is grown of a root that is on no partition and no disk of its own, as on LVM: images
// that have those bring what grows them.
func growRoot() error {
	var s unix.Stat_t
	if err := unix.Stat("/", &s); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	if errors.Is(err, os.ErrNotExist) {
		return nil // in memory, or of several disks
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "dm")); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		if err := growPartitionOf(dir); err != nil {
			return err
		}
	}
	size, err := readNumber(dir, "size")
	if err != nil {
		return err
	}
	return growFileSystem("/", size*sector)
}

func readNumber(dir, name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// growPartitionOf grows the partition with that directory in /sys, on the disk and in the kernel.
func growPartitionOf(dir string) error {
	parent := filepath.Dir(dir)
	sectors, err1 := readNumber(parent, "size")
	start, err2 := readNumber(dir, "start")
	number, err3 := readNumber(dir, "partition")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	disk, err := os.OpenFile("/dev/"+filepath.Base(parent), os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	size, err := growPartition(disk, sectors, start)
	if err != nil || size == 0 {
		return err
	}
	logf("partition %d of %s grows to %d MiB", number, disk.Name(), size*sector>>20)
	return resizePartition(disk, number, start, size)
}

// resizePartition sets the size in the kernel, which reads no table anew of a disk that is in use.
func resizePartition(disk *os.File, number, start, size uint64) error {
	const resize = 3
	p := struct {
		start, length int64
		number        int32
		names         [128]byte
	}{start: int64(start * sector), length: int64(size * sector), number: int32(number)}
	arg := struct {
		op, flags, length int32
		data              unsafe.Pointer
	}{op: resize, length: int32(unsafe.Sizeof(p)), data: unsafe.Pointer(&p)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return fmt.Errorf("the kernel does not resize partition %d of %s: %w", number, disk.Name(), errno)
	}
	return nil
}

// growFileSystem has the file system that is mounted at path take size bytes of its device.
func growFileSystem(path string, size uint64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	var errno unix.Errno
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		const resize = 0x40086610 // EXT4_IOC_RESIZE_FS
		blocks := size / uint64(s.Bsize)
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resize, uintptr(unsafe.Pointer(&blocks)))
	case unix.XFS_SUPER_MAGIC:
		errno = growXFS(dir, size/uint64(s.Bsize))
	default:
		return nil // btrfs and others lie on no one device
	}
	if errno != 0 {
		return fmt.Errorf("the file system of %s does not grow to %d bytes: %w", path, size, errno)
	}
	return nil
}

// growXFS keeps the share of the file system that inodes may take.
func growXFS(dir *os.File, blocks uint64) unix.Errno {
	const geometry, grow = 0x80705864, 0x4010586e // XFS_IOC_FSGEOMETRY_V1, XFS_IOC_FSGROWFSDATA
	var is [112]byte
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), geometry, uintptr(unsafe.Pointer(&is))); errno != 0 {
		return errno
	}
	if binary.NativeEndian.Uint64(is[32:]) >= blocks {
		return 0
	}
	to := struct {
		blocks uint64
		inodes uint32
		_      uint32
	}{blocks: blocks, inodes: binary.NativeEndian.Uint32(is[28:])}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), grow, uintptr(unsafe.Pointer(&to)))
	return errno
}
