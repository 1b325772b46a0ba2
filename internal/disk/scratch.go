package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/farm"
)

// The file system of a scratch disk is the same from every release of mke2fs: its features are listed, and what it
// would read from mke2fs.conf is said here. All of it is known to kernels since 2.6.28. There is no journal and no
// metadata checksum, for nobody ever repairs a scratch disk.
const (
	scratchFeatures = "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink," +
		"extra_isize,64bit,uninit_bg"
	mke2fsConfig = "MKE2FS_CONFIG=/dev/null"
)

// scratchOptions are all others, but for those that say what the disk is like.
var scratchOptions = []string{"-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384", "-m", "0", "-G", "16",
	"-e", "continue", "-O", scratchFeatures}

// FileOf is the name of the file of a scratch disk.
func FileOf(d farm.ScratchDisk) string { return d.Name + ".raw" }

// ScratchDisk makes a scratch disk or swap of a VM, empty, in a sparse file or where its storage says, and returns the
// path by which QEMU opens it. Errors: farm.CodeDiskFull, farm.CodeDiskTool, farm.CodeTooBig, farm.CodeBadSize.
func (p *Pool) ScratchDisk(ctx context.Context, vm string, d farm.ScratchDisk) (string, error) {
	if d.On != farm.OnFile {
		return p.volumeDisk(ctx, vm, d)
	}
	size := d.Size &^ 4095
	return p.make(ctx, vm, FileOf(d), func(file string) error {
		if err := os.Truncate(file, int64(size)); err != nil {
			return err
		}
		// A new sparse file is all zeros.
		return format(ctx, d, file, size, "assume_storage_prezeroed=1")
	})
}

// format makes the file system, or the swap area, of a disk. Only e2fsprogs 1.47 and later can be told that the disk is
// all zeros; after an older one the guest's kernel zeroes 1.6 % of it in the background, unless it mounts with
// noinit_itable.
func format(ctx context.Context, d farm.ScratchDisk, path string, size farm.Bytes, extended string) error {
	if d.Path == "" {
		return makeSwap(path, size)
	}
	mke2fs := func(extended string) error {
		return run(ctx, "e2fsprogs", "/usr/sbin/mke2fs", append(append([]string{}, scratchOptions...), "-L", d.Name,
			"-E", extended+",nodiscard,root_owner=0:0", path)...)
	}
	if err := mke2fs(extended); err == nil || full(err) || ctx.Err() != nil {
		return err
	}
	return mke2fs("lazy_itable_init=1")
}

// makeSwap writes the header of a swap area, as mkswap does: the version of Linux 2.2, for pages of 4 KiB.
func makeSwap(path string, size farm.Bytes) error {
	const page, magic = 4096, "SWAPSPACE2"
	if size < 10*page || size/page > 1<<32-1 {
		return fmt.Errorf("a swap area of %v", size)
	}
	header := make([]byte, page)
	binary.LittleEndian.PutUint32(header[1024:], 1)
	binary.LittleEndian.PutUint32(header[1028:], uint32(size/page-1)) // the last page
	copy(header[page-len(magic):], magic)
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	return f.Sync()
}
