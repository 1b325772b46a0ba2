package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
)

// RawRootFile is a root disk of the mode raw.
const RawRootFile = "root.raw"

// cloneTimeout is for a copy of a whole image on a disk that is very busy.
const cloneTimeout = 30 * time.Minute

// RootFiles are the names that a root disk can have.
var RootFiles = []string{OverlayFile, RawRootFile}

// Root is how a VM's root disk is opened.
type Root struct {
	Path, Format string
	Base         string // the image that it reads through to; "": it has all of it
}

// RootOf is the root disk of a VM with that directory, which need not be there yet.
func RootOf(dir string, mode farm.RootMode, image string) Root {
	switch mode {
	case farm.RootRaw:
		return Root{Path: filepath.Join(dir, RawRootFile), Format: "raw"}
	case farm.RootClone:
		return Root{Path: filepath.Join(dir, OverlayFile), Format: "qcow2"}
	}
	return Root{Path: filepath.Join(dir, OverlayFile), Format: "qcow2", Base: image}
}

// Root makes the VM's root disk. The guest sees size bytes, at least the base's; 0 means as many. A clone is made by a
// program that sees nothing but the image. Errors as of Overlay.
func (p *Pool) Root(ctx context.Context, vm string, base Base, mode farm.RootMode, size farm.Bytes) (Root, error) {
	root := RootOf(filepath.Join(p.dir, vm), mode, base.Path)
	if mode == farm.RootOverlay {
		_, err := p.Overlay(ctx, vm, base, size)
		return root, err
	}
	size, err := rootSize(base, size)
	if err != nil {
		return root, err
	}
	_, err = p.make(ctx, vm, path.Base(root.Path), func(file string) error {
		return p.clone(ctx, vm, base, root.Format, file, size)
	})
	return root, err
}

// rootSize is what the guest sees of a root disk over base.
func rootSize(base Base, size farm.Bytes) (farm.Bytes, error) {
	if size == 0 {
		size = base.Size
	}
	switch {
	case base.Format != "raw" && base.Format != "qcow2" || !filepath.IsAbs(base.Path):
		return 0, toolError(fmt.Sprintf("%q cannot be the base of a disk", base.Path), "",
			fmt.Errorf("format %q", base.Format))
	case size < base.Size:
		return 0, &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: fmt.Sprintf("the image needs a root disk of %v, and %v was asked for", base.Size, size),
			Hint:    "ask for a larger root disk, or choose a smaller image"}
	}
	return (size + 511) &^ 511, nil
}

// cloneDir is where a clone is made, below its VM's directory: qemu-img sees nothing else.
const cloneDir = "clone"

// clone fills file with the whole image, in the wanted format and size.
func (p *Pool) clone(ctx context.Context, vm string, base Base, format, file string, size farm.Bytes) (err error) {
	dir := path.Join(vm, cloneDir)
	if err := p.root.RemoveAll(dir); err != nil { // of an agent that was killed
		return err
	}
	if err := p.root.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.root.RemoveAll(dir)) }()
	if err := place(ctx, base.Path, filepath.Join(p.dir, dir, "in")); err != nil {
		return err
	}
	work, err := os.Open(filepath.Join(p.dir, dir))
	if err != nil {
		return err
	}
	defer work.Close()
	most := int64(OverlayBound(size))
	if err := convert(ctx, work, most, "convert", "-f", base.Format, "-O", format, "in", "out"); err != nil {
		return err
	}
	if size > base.Size {
		if err := convert(ctx, work, most, "resize", "-q", "-f", format, "out", fmt.Sprint(uint64(size))); err != nil {
			return err
		}
	}
	return p.takeOut(path.Join(dir, "out"), path.Join(vm, path.Base(file)))
}

// takeOut moves what a program has written to where it belongs: a regular file, ours, and nobody else's to read.
func (p *Pool) takeOut(from, to string) error {
	f, err := p.root.OpenFile(from, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && s.Nlink != 1 {
		return fmt.Errorf("qemu-img left a %s", info.Mode().Type())
	}
	if err := errors.Join(f.Chown(os.Geteuid(), os.Getegid()), f.Chmod(0o600)); err != nil {
		return err
	}
	return p.root.Rename(from, to)
}

// place has a file of ours at another name, to be read: as a link where that goes, shared blocks where the file system
// has them, and a copy otherwise.
func place(ctx context.Context, from, to string) error {
	if os.Geteuid() != 0 || ownAndShut(from) {
		if err := os.Link(from, to); err == nil {
			return nil
		}
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return out.Close()
	}
	_, err = io.Copy(out, &cancelled{ctx, in})
	return errors.Join(err, out.Close())
}

// ownAndShut reports whether all may read a file, and nobody but us may write to it by any name it has.
func ownAndShut(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid() && info.Mode().Perm()&0o027 == 0 && info.Mode().Perm()&0o004 != 0
}

// cancelled reads until its context ends.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// convert runs qemu-img in a directory where it sees nothing else.
func convert(ctx context.Context, dir *os.File, most int64, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, cloneTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/qemu-img", args...)
	cmd.Env, cmd.WaitDelay = toolEnv, time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	release, err := sandbox.StartConverter(cmd, dir, most)
	if errors.Is(err, fs.ErrNotExist) {
		return toolError("qemu-img cannot be run", "install qemu-utils", err)
	}
	if err != nil {
		return err
	}
	defer release()
	err = cmd.Wait()
	return said(ctx, "qemu-img "+args[0], out.Bytes(), err)
}

// said is the error of a program with its last words; nil where it did its work.
func said(ctx context.Context, tool string, out []byte, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	text := bytes.TrimSpace(out)
	if bytes.Contains(text, []byte("No space left on device")) || bytes.Contains(text, []byte("quota exceeded")) {
		err = errors.Join(err, syscall.ENOSPC) // programs tell of it in words only
	}
	return fmt.Errorf("%s: %w: %s", tool, err, strings.ReplaceAll(string(text), "\n", "; "))
}
