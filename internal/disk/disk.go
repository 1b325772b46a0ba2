// Package disk makes the throw-away disks of VMs: an overlay over an image, and an empty scratch disk. It never writes
// to an image, never lets qemu-img guess a format, and never keeps a disk that could not be made whole.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Names of a VM's disks in its directory.
const (
	OverlayFile = "root.qcow2"
	ScratchFile = "scratch.raw"
	SeedFile    = "seed.iso" // made by package seed
)

// diskName matches the names of a VM's disks: allFiles are those of a directory.
var diskName = lazyregexp.New(`^(root\.(qcow2|raw)|scratch(-[0-9]+)?\.raw|swap\.raw|seed\.iso)$`)

// ScratchLabel is the label of a scratch disk's file system.
const ScratchLabel = "scratch"

// toolTimeout is for qemu-img and mke2fs, which need milliseconds, on a disk that is very busy.
const toolTimeout = time.Minute

// Pool is a directory with one directory for each VM. Disks are made as the process's own: Give has a user open them.
// Methods may be called from several goroutines.
type Pool struct {
	dir     string
	root    *os.Root
	volumes atomic.Pointer[volumes] // nil: all disks are files
	quota   farm.Bytes              // of all files together; 0: as much as there is
}

// Base is the image that an overlay reads through to.
type Base struct {
	Path   string     // absolute
	Format string     // "raw" or "qcow2"
	Size   farm.Bytes // what the guest sees
}

// Open opens the pool below dir and makes it if need be. Error: farm.CodeDiskTool.
func Open(dir string) (*Pool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, poolError(dir, err)
	}
	// QEMU must get through, and others need not see which VMs there are.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, poolError(dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, poolError(dir, err)
	}
	return &Pool{dir: dir, root: root}, nil
}

// Close gives back the directory handle. Disks stay.
func (p *Pool) Close() error { return p.root.Close() }

// Overlay makes the VM's root disk, a qcow2 that keeps what the guest changes, and returns its path. The guest sees
// size bytes, at least the base's; 0 means as many. It never takes more than OverlayBound of that. Errors:
// farm.CodeDiskFull, farm.CodeDiskTool, farm.CodeTooBig when size is less than the base's.
func (p *Pool) Overlay(ctx context.Context, vm string, base Base, size farm.Bytes) (string, error) {
	size, err := rootSize(base, size)
	if err != nil {
		return "", err
	}
	return p.make(ctx, vm, OverlayFile, func(file string) error {
		// qemu-img needs 10 ms for this; a header written by ourselves would save most of them, of a start of 1.5 s.
		// -u: it does not open the base, which a stranger may have made, and which QEMU opens without our rights.
		if _, err := os.Stat(base.Path); err != nil {
			return err
		}
		return run(ctx, "qemu-utils", "/usr/bin/qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", base.Format, "-b",
			base.Path, file, fmt.Sprint(uint64(size)))
	})
}

// OverlayBound is the most that an overlay can ever take, of which the guest sees size bytes: QEMU keeps 8 bytes of
// where a cluster is and 2 of how often it is used for every 64 KiB of it, and a guest makes no snapshots.
func OverlayBound(size farm.Bytes) farm.Bytes { return size + size/4096 + farm.MiB }

// Scratch makes the VM's scratch disk, a sparse raw file of size bytes with an empty ext4 labelled ScratchLabel, and
// returns its path. Errors: farm.CodeDiskFull, farm.CodeDiskTool, farm.CodeTooBig, farm.CodeBadSize.
func (p *Pool) Scratch(ctx context.Context, vm string, size farm.Bytes) (string, error) {
	if size < 16*farm.MiB || size > 16*farm.TiB {
		return "", &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadSize,
			Message: fmt.Sprintf("a scratch disk of %v cannot be made", size), Hint: "ask for 16M to 16T"}
	}
	return p.ScratchDisk(ctx, vm, farm.ScratchDisk{Name: ScratchLabel, Path: "/tmp", Size: size})
}

// Remove deletes all disks of the VM, whose machine must be gone. A VM without disks is no error.
func (p *Pool) Remove(vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	if err := p.root.RemoveAll(vm); err != nil {
		return poolError(path.Join(p.dir, vm), err)
	}
	return nil
}

// Give has the disks of a VM, whose machine must be gone, belong to a user, who alone opens them. The directory stays
// the process's own: those of the group pass through it, and nobody else. A VM without disks is no error.
func (p *Pool) Give(vm string, uid, gid int) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	err := p.root.Chown(vm, -1, gid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err, p.root.Chmod(vm, 0o710)}
	names, err := p.disks(vm)
	errs = append(errs, err)
	for _, name := range names {
		if err := p.root.Lchown(path.Join(vm, name), uid, -1); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return poolError(path.Join(p.dir, vm), err)
	}
	return nil
}

// IsDisk reports whether a file of that name is a disk of its VM.
func IsDisk(name string) bool { return diskName.MatchString(name) }

// Names are those of the disks in a VM's directory; none where there is no directory.
func Names(dir string) (names []string, err error) { return diskNames(os.DirFS(dir), ".") }

// disks are the names of a VM's disks.
func (p *Pool) disks(vm string) (names []string, err error) { return diskNames(p.root.FS(), vm) }

func diskNames(in fs.FS, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(in, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if IsDisk(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Take has the disks of a VM, whose machine must be gone, belong to the process's own user again.
func (p *Pool) Take(vm string) error { return p.Give(vm, os.Getuid(), os.Getgid()) }

// Owners are the users whom disks of VMs belong to.
func (p *Pool) Owners() (map[uint32]bool, error) {
	vms, err := p.List()
	if err != nil {
		return nil, err
	}
	found := map[uint32]bool{}
	for _, vm := range vms {
		names, err := p.disks(vm)
		if err != nil {
			return nil, poolError(path.Join(p.dir, vm), err)
		}
		for _, name := range names {
			info, err := p.root.Lstat(path.Join(vm, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, poolError(path.Join(p.dir, vm), err)
			}
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				found[s.Uid] = true
			}
		}
	}
	return found, nil
}

// List returns the VMs that have a directory, by name. One whose machine is gone should be removed.
func (p *Pool) List() ([]string, error) {
	entries, err := fs.ReadDir(p.root.FS(), ".")
	if err != nil {
		return nil, poolError(p.dir, err)
	}
	var vms []string
	for _, e := range entries {
		if e.IsDir() && validVM.MatchString(e.Name()) {
			vms = append(vms, e.Name())
		}
	}
	return vms, nil
}

// Space returns what the pool has to give. promised is what the disks of VMs may take in all, by the name of the VM;
// those of its second attempt, NAME-2, are its own. A scratch disk that was promised to nobody counts with its size.
func (p *Pool) Space(promised map[string]farm.Bytes) (farm.DiskSpace, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(p.dir, &s); err != nil {
		return farm.DiskSpace{}, poolError(p.dir, err)
	}
	vms, err := p.List()
	if err != nil {
		return farm.DiskSpace{}, err
	}
	block := farm.Bytes(s.Bsize)
	out := farm.DiskSpace{Total: farm.Bytes(s.Blocks) * block, Free: farm.Bytes(s.Bavail) * block}
	used := map[string]farm.Bytes{}
	var owed farm.Bytes
	for _, vm := range vms {
		has, sizes := p.usageOf(vm)
		out.Pool += has
		if name := nameOf(vm, promised); name != "" {
			used[name] += has
		} else {
			owed += sizes
		}
	}
	for name, size := range promised {
		owed += size - min(size, used[name])
	}
	if q := p.quota; q > 0 {
		out.Total, out.Free = min(out.Total, q), min(out.Free, q-min(q, out.Pool))
	}
	out.Pool += out.Free
	if owed > out.Free {
		out.Short = owed - out.Free
	}
	out.Free -= min(out.Free, owed)
	return out, nil
}

// nameOf is under which name the disks of a directory are promised.
func nameOf(dir string, promised map[string]farm.Bytes) string {
	if _, ok := promised[dir]; ok {
		return dir
	}
	if at := strings.LastIndexByte(dir, '-'); at > 0 {
		if _, ok := promised[dir[:at]]; ok {
			return dir[:at]
		}
	}
	return ""
}

// usageOf is what a VM's disks take of the file system, and how much more those may take whose size is all they can.
func (p *Pool) usageOf(vm string) (used, more farm.Bytes) {
	names, _ := p.disks(vm)
	for _, name := range names {
		has, size := p.usage(vm, name)
		if used += has; strings.HasSuffix(name, ".raw") {
			more += size - min(size, has)
		}
	}
	return used, more
}

// RootUse is what the VM's root disk takes; 0 where it has none.
func (p *Pool) RootUse(vm string) (sum farm.Bytes) {
	for _, name := range RootFiles {
		used, _ := p.usage(vm, name)
		sum += used
	}
	return sum
}

// usage is what a file takes, and its size; zero where there is none, or no longer.
func (p *Pool) usage(vm, file string) (used, size farm.Bytes) {
	info, err := p.root.Stat(path.Join(vm, file))
	if err != nil {
		return 0, 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		used = farm.Bytes(s.Blocks) * 512
	}
	return used, farm.Bytes(info.Size())
}

var validVM = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkVM(vm string) error {
	if validVM.MatchString(vm) {
		return nil
	}
	return poolError(vm, fmt.Errorf("invalid VM ID %q", vm))
}

// make makes one disk. When it fails neither the disk nor an empty directory is left.
func (p *Pool) make(ctx context.Context, vm, name string, fill func(file string) error) (_ string, err error) {
	if err := checkVM(vm); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err = p.root.Mkdir(vm, 0o700)
	isNew := err == nil
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	// O_EXCL: a disk that a VM may be using is never made anew.
	made := path.Join(vm, name)
	var f *os.File
	if err == nil {
		f, err = p.root.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err == nil {
		f.Close()
		err = fill(filepath.Join(p.dir, made))
		if err != nil {
			err = errors.Join(err, p.root.Remove(made))
		}
	}
	if err != nil {
		if isNew {
			p.root.Remove(vm)
		}
		return "", diskError(filepath.Join(p.dir, made), err)
	}
	return filepath.Join(p.dir, made), nil
}

// toolEnv is the whole environment of the host's tools.
var toolEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", mke2fsConfig}

// run runs one tool of the host with a fixed environment.
func run(ctx context.Context, pkg, tool string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env, cmd.WaitDelay = toolEnv, time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrNotExist) {
		return toolError(tool+" cannot be run", "install "+pkg, err)
	}
	return said(ctx, tool, out, err)
}

func diskError(file string, err error) error {
	var known *farm.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.EFBIG):
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeTooBig,
			Message: "the file system of " + file + " holds no file of that size",
			Hint:    "ask for less scratch space", Err: err}
	case full(err):
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "the file system of " + file + " is full",
			Hint:    "free space there, or wait until other VMs have ended", Err: err}
	}
	return toolError("disk "+file+" cannot be made", "see the agent's log", err)
}

func poolError(what string, err error) error {
	return toolError("the disks in "+what+" cannot be used", "check that the directory exists and belongs to the agent",
		err)
}

func toolError(message, hint string, err error) error {
	return &farm.Error{Kind: farm.Internal, Code: farm.CodeDiskTool, Message: message, Hint: hint, Err: err}
}
