package vmimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

const (
	seekData = 3 // SEEK_DATA of lseek(2)
	seekHole = 4 // SEEK_HOLE

	copyBlock = 1 << 20
	zeroBlock = 64 << 10 // holes are made in multiples of this
)

// copySparse copies from to to (empty) and returns the digest of all bytes, holes included. Where the file system can,
// blocks are shared; where it cannot, holes stay holes and blocks of zeros become holes. progress may be nil; it is
// told the bytes read so far.
func copySparse(ctx context.Context, to, from *os.File, size int64, progress func(done int64)) (sum []byte, err error) {
	if progress == nil {
		progress = func(int64) {}
	}
	// The clone is what gets read: the source may change meanwhile, and the digest must be that of the copy.
	cloned := unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
	if cloned {
		if err := to.Truncate(size); err != nil {
			return nil, err
		}
		from = to
	}
	h := sha256.New()
	block, zeros := make([]byte, copyBlock), make([]byte, copyBlock)
	hole := func(at, end int64) error {
		for at < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(end-at, copyBlock)
			h.Write(zeros[:n])
			at += n
			progress(at)
		}
		return nil
	}
	for at := int64(0); at < size; {
		data, err := from.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) {
			data = size // nothing but a hole follows
		} else if err != nil {
			data = at // a file system without holes
		}
		data = min(data, size)
		if err := hole(at, data); err != nil {
			return nil, err
		}
		end := size
		if e, err := from.Seek(data, seekHole); err == nil && e > data {
			end = min(e, size)
		}
		for at = data; at < end; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n, err := from.ReadAt(block[:min(end-at, copyBlock)], at)
			if n == 0 {
				if errors.Is(err, io.EOF) {
					err = badImage("the file became shorter while it was read",
						"import it when nothing writes to it any more", nil)
				}
				return nil, err
			}
			h.Write(block[:n])
			if !cloned {
				if err := writeSparse(to, block[:n], at, zeros); err != nil {
					return nil, err
				}
			}
			at += int64(n)
			progress(at)
		}
	}
	if !cloned {
		err = to.Truncate(size)
	}
	return h.Sum(nil), err
}

// writeSparse writes b at the offset and leaves out blocks of zeros.
func writeSparse(to *os.File, b []byte, at int64, zeros []byte) error {
	for len(b) > 0 {
		n := min(len(b), zeroBlock)
		if !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := to.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// copyFile adds a copy of from to the draft.
func (d *draft) copyFile(ctx context.Context, name string, from *os.File, size int64, progress func(done int64)) error {
	to, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return writeError(d.store.dir, err)
	}
	defer to.Close()
	if err := d.fits(from, clones(d.store) && sameDevice(to, from)); err != nil {
		return err
	}
	sum, err := copySparse(ctx, to, from, size, progress)
	if err != nil {
		return writeError(d.store.dir, err)
	}
	return d.finish(to, name, size, sum)
}

// fits refuses a copy for which there is no space. A clone needs none of the file system, and counts in the quota.
func (d *draft) fits(from *os.File, cloned bool) error {
	info, err := from.Stat()
	if err != nil {
		return storeError(d.store.dir, err)
	}
	size := onDisk(info)
	left, err := quotaLeft(d.store)
	if err == nil && !cloned && size <= left {
		size += spare
		left, err = freeSpace(d.store.dir)
	}
	if err != nil {
		return storeError(d.store.dir, err)
	}
	if size > left {
		return noRoomFor(d.store.dir, size-left)
	}
	return nil
}

// roomFor is what an image takes while it is brought, with what is to be left: what came lies there a second time where
// files cannot share blocks.
func roomFor(s *Store, size farm.Bytes) farm.Bytes {
	if !clones(s) {
		size *= 2
	}
	return size + spare
}

// clones reports whether files of the store can share blocks.
func clones(s *Store) bool {
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(s.dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
		if err != nil {
			return false
		}
		defer f.Close()
		files[i] = f
	}
	_, err := files[0].Write(make([]byte, zeroBlock))
	return err == nil && unix.IoctlFileClone(int(files[1].Fd()), int(files[0].Fd())) == nil
}

func sameDevice(f, g *os.File) bool {
	var one, other unix.Stat_t
	return unix.Fstat(int(f.Fd()), &one) == nil && unix.Fstat(int(g.Fd()), &other) == nil && one.Dev == other.Dev
}

// onDisk is what a file takes of its file system.
func onDisk(info fs.FileInfo) farm.Bytes {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return farm.Bytes(s.Blocks) * 512
	}
	return farm.Bytes(info.Size())
}

// SetQuota bounds what the files of a store may take of their file system; 0 does not.
func SetQuota(s *Store, q farm.Bytes) { s.quota = q }

// free is what files of a store may still take.
func free(s *Store) (farm.Bytes, error) {
	free, err := freeSpace(s.dir)
	if err != nil {
		return 0, err
	}
	left, err := quotaLeft(s)
	return min(free, left), err
}

// quotaLeft is what is left of a store's quota.
func quotaLeft(s *Store) (farm.Bytes, error) {
	if s.quota == 0 {
		return math.MaxInt64, nil
	}
	var used farm.Bytes
	err := fs.WalkDir(s.root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreMissing(err)
		}
		info, err := e.Info()
		if err == nil {
			used += onDisk(info)
		}
		return ignoreMissing(err)
	})
	return s.quota - min(s.quota, used), err
}

// ignoreMissing is for files that go while somebody looks.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func freeSpace(dir string) (farm.Bytes, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return farm.Bytes(s.Bavail) * farm.Bytes(s.Bsize), nil
}
