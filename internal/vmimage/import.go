package vmimage

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
)

// maxCmdline is COMMAND_LINE_SIZE of Linux on x86-64, less the closing zero byte.
const maxCmdline = 2047

// Import copies an image into the store and names it. path is a disk (qcow2 or raw), or a directory with a kernel
// (vmlinux or vmlinuz), its initrd, and if wanted a file cmdline, or a SIF file. A disk may be packed by gzip, xz or
// zstd, and be one of other hypervisors, see normal.go. What the file says of itself is checked before anything else
// sees it; a disk that refers to other files is refused. progress is told bytes and may be nil. The caller must be
// allowed to read path: Import runs with the process's own rights. Errors: farm.CodeBadImage, CodeBadImageName,
// farm.CodeDiskFull, farm.CodeImageStore.
func (s *Store) Import(ctx context.Context, name, path string, progress func(done, total farm.Bytes)) (Image, error) {
	if err := CheckName(name); err != nil {
		return Image{}, err
	}
	if progress == nil {
		progress = func(farm.Bytes, farm.Bytes) {}
	}
	// Without O_NONBLOCK a named pipe would hold us for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Image{}, unreadable(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Image{}, unreadable(path, err)
	}
	d, err := s.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	switch {
	case info.IsDir():
		err = d.importKernel(ctx, path, progress)
	case info.Mode().IsRegular():
		err = d.importDisk(ctx, input{File: f, size: info.Size()}, progress)
	default:
		err = badImage(path+" is neither a file nor a directory",
			"give a disk image, or a directory with a kernel and its initrd", nil)
	}
	if err != nil {
		return Image{}, err
	}
	d.image.Description = "imported from " + filepath.Base(path)
	return d.commit(name)
}

func (d *draft) importDisk(ctx context.Context, in input, progress func(done, total farm.Bytes)) error {
	in, err := d.normal(ctx, in, progress)
	if err != nil {
		return err
	}
	if in.has(container.SIFMagicAt, container.SIFMagic) {
		return d.importSIF(ctx, in, progress)
	}
	h, err := readHeader(in, in.size)
	if err != nil {
		return err
	}
	name := "disk." + h.format
	if err := d.take(ctx, name, in, progress); err != nil {
		return err
	}
	// The copy is what VMs get, and the source may have changed since: only what the copy says counts.
	own, err := d.root.Open(name)
	if err != nil {
		return storeError(d.store.dir, err)
	}
	defer own.Close()
	copied, err := readHeader(own, in.size)
	if err != nil {
		return err
	}
	if copied != h {
		return badImage("the file changed while it was read", "import it when nothing writes to it any more", nil)
	}
	if h.format == "qcow2" {
		if err := checkQcow2(ctx, own); err != nil {
			return err
		}
	}
	d.image.Kind, d.image.Format, d.image.VirtualSize = Disk, h.format, h.virtual
	d.image.Firmware, err = firmware(ctx, own, h)
	return err
}

// checkQcow2 lets qemu-img look as well, once we have: it compares every reference count. Exit status 3 tells of leaked
// clusters, which harm nobody.
func checkQcow2(ctx context.Context, f *os.File) error {
	_, err := command{path: "/usr/bin/qemu-img", args: []string{"check", "-q", "-f", "qcow2", sandbox.InputPath(f)},
		start: reader(f), timeout: 10 * time.Minute, hint: "install qemu-utils"}.run(ctx)
	var exit interface{ ExitCode() int }
	var known *farm.Error
	switch {
	case err == nil, errors.As(err, &exit) && exit.ExitCode() == 3:
		return nil
	case errors.As(err, &known):
		known.Code = farm.CodeDiskTool // no image is being built
		return known
	case ended(err) && ctx.Err() != nil:
		return err
	}
	return badImage("qemu-img finds the disk damaged",
		copyHint, err)
}

func (d *draft) importKernel(ctx context.Context, dir string, progress func(done, total farm.Bytes)) error {
	root, err := os.OpenRoot(dir) // the directory's links must not lead out of it
	if err != nil {
		return unreadable(dir, err)
	}
	defer root.Close()
	kernel := ""
	for _, k := range kernelFiles {
		if _, err := root.Stat(k); err == nil {
			kernel = k
			break
		}
	}
	if kernel == "" {
		return badImage("directory "+dir+" has neither vmlinux nor vmlinuz",
			"name the kernel vmlinuz, and its initramfs initrd", nil)
	}
	for _, name := range []string{kernel, initrdFile} {
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return badImage(name+" in "+dir+" cannot be read", "name the kernel vmlinuz, and its initramfs initrd", err)
		}
		err = d.importPart(ctx, name, f, name == kernel, progress)
		f.Close()
		if err != nil {
			return err
		}
	}
	d.image.Kind = Kernel
	cmdline, err := root.OpenFile("cmdline", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return unreadable(filepath.Join(dir, "cmdline"), err)
	}
	defer cmdline.Close()
	text, err := io.ReadAll(io.LimitReader(cmdline, maxCmdline+2))
	if err != nil {
		return unreadable(filepath.Join(dir, "cmdline"), err)
	}
	line := strings.TrimSpace(string(text))
	if len(line) > maxCmdline || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return badImage("invalid cmdline: want a single line of up to 2047 ASCII characters",
			"write kernel parameters on one line", nil)
	}
	d.image.Cmdline = line
	return nil
}

func (d *draft) importPart(ctx context.Context, name string, f *os.File, kernel bool,
	progress func(done, total farm.Bytes)) error {
	info, err := f.Stat()
	if err != nil {
		return unreadable(name, err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return badImage(name+" is empty or no file", "copy it again", nil)
	}
	if kernel {
		if err := checkKernel(f, name); err != nil {
			return err
		}
	}
	return d.copyFile(ctx, name, f, info.Size(),
		func(done int64) { progress(farm.Bytes(done), farm.Bytes(info.Size())) })
}

// checkKernel reports whether QEMU can load the file itself: an x86-64 ELF, or a bzImage.
func checkKernel(r io.ReaderAt, name string) error {
	hint := "give a bzImage (vmlinuz), or an uncompressed x86-64 vmlinux that can start by PVH"
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil {
		return badImage(name+" is not a kernel", hint, err)
	}
	if bytes.Equal(magic[:], []byte(elf.ELFMAG)) {
		f, err := elf.NewFile(r)
		if err != nil || f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC || !hasPVH(f) {
			return badImage(name+" is not an x86-64 kernel with a PVH entry", hint, err)
		}
		return nil
	}
	if _, err := r.ReadAt(magic[:], 0x202); err != nil || string(magic[:]) != "HdrS" {
		return badImage(name+" is not a Linux kernel", hint, err)
	}
	return nil
}

func unreadable(path string, err error) error {
	kind := farm.Invalid
	if errors.Is(err, fs.ErrPermission) {
		kind = farm.Denied
	}
	return &farm.Error{Kind: kind, Code: farm.CodeBadImage, Message: path + " cannot be read",
		Hint: "check the path and its permissions", Err: err}
}
