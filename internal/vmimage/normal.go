package vmimage

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
)

// input is a file on its way into the store.
type input struct {
	*os.File
	size int64
	own  string // its name below the store when it is the store's to move; "": it is copied
}

const twice = "it is packed twice: pack it once"

// packers are the ways to pack a file, by their first bytes.
var packers = []struct {
	magic  string
	what   string
	unpack func(ctx context.Context, from *os.File, read func(io.Reader) error) error
}{
	{"\x1f\x8b", "gzip", unpackGzip},
	{"\xfd7zXZ\x00", "xz", unpackXZ},
	{"\x28\xb5\x2f\xfd", "zstd", unpackZstd},
}

// converters are the formats that qemu-img makes a qcow2 of. What describes a disk in several files is not among them.
var converters = []struct {
	at            int64 // negative: from the end of the file
	magic, format string
}{
	{0, "KDMV", "vmdk"}, {0, "COWD", "vmdk"}, {0x40, "\x7f\x10\xda\xbe", "vdi"}, {0, "vhdxfile", "vhdx"},
	{0, "conectix", "vpc"}, {-512, "conectix", "vpc"},
}

// normal returns the disk that in holds: in itself, or what was packed in it, or the same disk as a qcow2.
func (d *draft) normal(ctx context.Context, in input, progress func(done, total farm.Bytes)) (input, error) {
	for _, p := range packers {
		if !in.has(0, p.magic) {
			continue
		}
		out, err := d.work("unpacked")
		if err != nil {
			return in, err
		}
		s := &sparse{to: out, progress: progress, store: d.store}
		err = p.unpack(ctx, in.File, func(r io.Reader) error {
			_, err := io.CopyBuffer(s, readerWithContext{ctx, r}, make([]byte, copyBlock))
			return err
		})
		if err == nil {
			err = out.Truncate(s.at)
		}
		if err != nil {
			return in, unpackError(ctx, p.what, d.store.dir, err)
		}
		in = input{out, s.at, path.Join(d.name, "unpacked")}
		break
	}
	for _, c := range converters {
		if in.has(c.at, c.magic) {
			return d.convert(ctx, in, c.format)
		}
	}
	return in, nil
}

func (in input) has(at int64, magic string) bool {
	if at < 0 {
		at += in.size
	}
	b := make([]byte, len(magic))
	n, _ := in.ReadAt(b, max(at, 0))
	return at >= 0 && string(b[:n]) == magic
}

func unpackError(ctx context.Context, what, dir string, err error) error {
	var known *farm.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known), full(err):
		return writeError(dir, err)
	}
	return badImage("the file is packed with "+what+" and damaged", "copy it again", err)
}

func unpackGzip(_ context.Context, from *os.File, read func(io.Reader) error) error {
	r, err := gzip.NewReader(io.NewSectionReader(from, 0, maxPacked))
	if err != nil {
		return err
	}
	return read(r)
}

// maxPacked is as far as a packed file is read.
const maxPacked = 1 << 60

func unpackZstd(_ context.Context, from *os.File, read func(io.Reader) error) error {
	// The window of zstd --long=27 is enough for images; a window of gigabytes would exhaust the memory.
	r, err := zstd.NewReader(io.NewSectionReader(from, 0, maxPacked), zstd.WithDecoderMaxWindow(128<<20),
		zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer r.Close()
	return read(r)
}

// unpackXZ runs xz, for a library in Go takes ten times as long.
func unpackXZ(ctx context.Context, from *os.File, read func(io.Reader) error) error {
	stdin, err := os.Open(from.Name()) // with an offset of its own
	if err != nil {
		return err
	}
	defer stdin.Close()
	return command{path: "/usr/bin/xz", args: []string{"-dc", "--memlimit=256MiB"}, stdin: stdin, start: reader(nil),
		timeout: convertTime, hint: "install xz-utils"}.stream(ctx, read)
}

const convertTime = 2 * time.Hour

// work opens a file of the draft that is gone when the draft is committed.
func (d *draft) work(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, writeError(d.store.dir, err)
	}
	d.files = append(d.files, f)
	return f, nil
}

// spare is what unpacking and converting leave free of the store's file system: VMs write there, too.
const spare = farm.GiB

// sparse writes a file with holes for zeros, and ends before the file system is full.
type sparse struct {
	to       *os.File
	at       int64
	checked  int64
	store    *Store
	progress func(done, total farm.Bytes)
}

var zeros = make([]byte, zeroBlock)

func (s *sparse) Write(b []byte) (int, error) {
	if farm.Bytes(s.at)+farm.Bytes(len(b)) > maxVirtual {
		return 0, badImage("the disk is larger than "+maxVirtual.String(), rawHint, nil)
	}
	if s.at >= s.checked {
		if left, err := free(s.store); err == nil && left < spare {
			return 0, syscall.ENOSPC
		}
		s.checked = s.at + 64<<20
	}
	if err := writeSparse(s.to, b, s.at, zeros); err != nil {
		return 0, err
	}
	s.at += int64(len(b))
	s.progress(farm.Bytes(s.at), 0)
	return len(b), nil
}

// convert runs qemu-img on a copy in a directory where it sees nothing else.
func (d *draft) convert(ctx context.Context, in input, format string) (input, error) {
	if err := d.root.Mkdir("converted", 0o700); err != nil {
		return in, writeError(d.store.dir, err)
	}
	if err := d.place(ctx, in, path.Join("converted", "input")); err != nil {
		return in, err
	}
	left, err := free(d.store)
	if err != nil || left < spare {
		return in, writeError(d.store.dir, errors.Join(err, syscall.ENOSPC))
	}
	out, err := d.root.Open("converted")
	if err != nil {
		return in, storeError(d.store.dir, err)
	}
	defer out.Close()
	// A raw disk that is sparse may be larger than what is free, a qcow2 is not.
	most := int64(min(left-spare+farm.Bytes(in.size), maxVirtual))
	_, err = command{path: "/usr/bin/qemu-img",
		args: []string{"convert", "-f", format, "-O", "qcow2", "input", "disk"}, hint: "install qemu-utils",
		timeout: convertTime,
		start:   func(cmd *exec.Cmd) (func(), error) { return sandbox.StartConverter(cmd, out, most) }}.run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return in, ctx.Err()
		}
		return in, badImage("qemu-img cannot convert the "+format+" disk"+extents(in, in.size), exportHint, err)
	}
	return d.converted()
}

// converted takes what qemu-img has written out of its directory: a regular file, and ours.
func (d *draft) converted() (input, error) {
	fail := func(err error) (input, error) { return input{}, storeError(d.store.dir, err) }
	if err := d.root.Rename("converted/disk", "qcow2"); err != nil {
		return fail(err)
	}
	f, err := d.root.OpenFile("qcow2", os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}
	d.files = append(d.files, f)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("qemu-img left a %s", info.Mode().Type())
	}
	if err == nil && os.Geteuid() == 0 {
		err = f.Chown(0, 0)
	}
	if err = errors.Join(err, d.root.RemoveAll("converted")); err != nil {
		return fail(err)
	}
	return input{f, info.Size(), path.Join(d.name, "qcow2")}, nil
}

// place puts a file that a program may read at name in the draft: moved if it is the store's, copied otherwise.
func (d *draft) place(ctx context.Context, in input, name string) error {
	if in.own != "" {
		if err := d.store.root.Rename(in.own, path.Join(d.name, name)); err != nil {
			return storeError(d.store.dir, err)
		}
		return in.Chmod(0o444)
	}
	to, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
	if err != nil {
		return writeError(d.store.dir, err)
	}
	defer to.Close()
	if _, err := copySparse(ctx, to, in.File, in.size, nil); err != nil {
		return writeError(d.store.dir, err)
	}
	return nil
}

// take adds in to the image: moved and read once if it is the store's, copied otherwise.
func (d *draft) take(ctx context.Context, name string, in input, progress func(done, total farm.Bytes)) error {
	if in.own == "" {
		return d.copyFile(ctx, name, in.File, in.size,
			func(done int64) { progress(farm.Bytes(done), farm.Bytes(in.size)) })
	}
	if err := d.store.root.Rename(in.own, path.Join(d.name, name)); err != nil {
		return storeError(d.store.dir, err)
	}
	h := sha256.New()
	from := readerWithContext{ctx, io.NewSectionReader(in.File, 0, in.size)}
	if _, err := io.CopyBuffer(h, from, make([]byte, copyBlock)); err != nil {
		return writeError(d.store.dir, err)
	}
	return d.finish(in.File, name, in.size, h.Sum(nil))
}
