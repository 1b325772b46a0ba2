package disk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lvm"
)

// Volumes is where a pool makes the disks that are no files.
type Volumes struct {
	Group    string // volume group; "": there are none
	ThinPool string // of that group; "": there are no thin ones
	Wipe     lvm.Wipe
}

// at is the place of a storage; false where there is none.
func (v Volumes) at(on farm.Storage) (lvm.Place, bool) {
	switch {
	case v.Group == "" || on == farm.OnThin && v.ThinPool == "":
		return lvm.Place{}, false
	case on == farm.OnThin:
		return lvm.Place{Group: v.Group, Pool: v.ThinPool}, true
	}
	return lvm.Place{Group: v.Group}, on == farm.OnVolume
}

// volumes is a pool's side of LVM. A volume lies in its VM's directory as a device file of the VM's own: who opens it
// is settled there, as of a file, and udev has no say in that.
type volumes struct {
	lvm      lvm.LVM
	settings Volumes
	owner    string

	mu     sync.Mutex
	report lvm.Report // the last one, with what was made and removed since
}

// ownerFile holds the word by which a pool knows its volumes again.
const ownerFile = ".owner"

// UseVolumes has the pool make disks of LVM as well, and reads what there is. What an earlier process has left there is
// removed by CleanVolumes. Errors: lvm.CodeNoVolumes, lvm.CodeVolumeTool.
func (p *Pool) UseVolumes(ctx context.Context, s Volumes) error {
	if s.Group == "" {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err != nil {
		return poolError(p.dir, err)
	}
	if fs.Flags&unix.ST_NODEV != 0 {
		return &farm.Error{Kind: farm.Invalid, Code: lvm.CodeNoVolumes,
			Message: p.dir + " is mounted with nodev: no device of a volume can be opened there",
			Hint:    "mount it without nodev, or name another path in [areas] of the agent's configuration"}
	}
	owner, err := p.readOwner()
	if err != nil {
		return poolError(p.dir, err)
	}
	v := &volumes{settings: s, owner: owner}
	if err := v.refresh(ctx); err != nil {
		return err
	}
	for _, on := range []farm.Storage{farm.OnVolume, farm.OnThin} {
		if place, ok := s.at(on); ok {
			if err := v.report.Has(place); err != nil {
				return err
			}
		}
	}
	p.volumes.Store(v)
	return nil
}

// readOwner is the word in the pool's directory, made the first time.
func (p *Pool) readOwner() (string, error) {
	text, err := p.root.ReadFile(ownerFile)
	if err == nil && lvm.ValidName(string(text)) {
		return string(text), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	owner := rand.Text()
	const part = ownerFile + ".part" // whole or not there: an agent may be killed in between
	f, err := p.root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(owner)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = p.root.Rename(part, ownerFile)
	}
	return owner, err
}

func (v *volumes) refresh(ctx context.Context) error {
	r, err := v.lvm.Read(ctx)
	if err == nil {
		v.mu.Lock()
		v.report = r
		v.mu.Unlock()
	}
	return err
}

func (v *volumes) now() lvm.Report {
	v.mu.Lock()
	defer v.mu.Unlock()
	return lvm.Report{Volumes: slices.Clone(v.report.Volumes), Spaces: v.report.Spaces}
}

// of are the volumes of one VM; all of its own names, and of this pool.
func (v *volumes) of(vm string) (all []lvm.Volume) {
	for _, x := range v.now().Volumes {
		if x.Owner == v.owner && x.VM == vm {
			all = append(all, x)
		}
	}
	return all
}

func (v *volumes) forget(gone lvm.Volume) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Volumes = slices.DeleteFunc(v.report.Volumes, func(x lvm.Volume) bool {
		return x.Group == gone.Group && x.Name == gone.Name
	})
}

// volumeName is the same at each start of a VM, and another's for no other VM.
func volumeName(vm, disk string) string { return "grange." + vm + "." + disk }

// NoStorage is the error of a disk where the host has no such storage.
func NoStorage(on farm.Storage) error {
	key := "volume_group"
	if on == farm.OnThin {
		key = "thin_pool"
	}
	return &farm.Error{Kind: farm.Invalid, Code: lvm.CodeNoVolumes,
		Message: fmt.Sprintf("this host has no storage %q for disks of VMs", on),
		Hint: "ask for scratch in a file, as --scratch 20G; or name a " + key +
			" in [areas] of the agent's configuration"}
}

// notReady is the error of volumes while LVM has not answered, or has not what the configuration names.
func notReady() error {
	return &farm.Error{Kind: farm.Unavailable, Code: lvm.CodeNoVolumes,
		Message: "volumes for disks of VMs cannot be made on this host now",
		Hint:    "see the agent's log for what LVM says; or ask for scratch in a file, as --scratch 20G"}
}

// Check refuses disks on storage that there is not.
func (v Volumes) Check(s farm.Shape) error {
	for _, d := range s.ScratchDisks() {
		if _, ok := v.at(d.On); !ok && (d.On == farm.OnVolume || d.On == farm.OnThin) {
			return NoStorage(d.On)
		}
	}
	return nil
}

// volumeDisk makes a disk of LVM.
func (p *Pool) volumeDisk(ctx context.Context, vm string, d farm.ScratchDisk) (string, error) {
	v := p.volumes.Load()
	if v == nil {
		return "", notReady()
	}
	place, ok := v.settings.at(d.On)
	if !ok {
		return "", NoStorage(d.On)
	}
	return p.makeFile(ctx, vm, FileOf(d), func(file string) (err error) {
		for _, old := range v.of(vm) {
			if old.Name == volumeName(vm, d.Name) { // of a VM whose disks are made anew
				if err := v.remove(ctx, old); err != nil {
					return err
				}
			}
		}
		made, err := v.lvm.Create(ctx, place, volumeName(vm, d.Name), d.Size, v.owner, vm)
		if err != nil {
			return err
		}
		v.mu.Lock()
		v.report.Volumes = append(v.report.Volumes, made)
		v.mu.Unlock()
		if err = v.fill(ctx, made, d); err == nil {
			err = node(file, made.Path())
		}
		if err != nil {
			return errors.Join(err, v.remove(context.WithoutCancel(ctx), made))
		}
		return nil
	})
}

// fill clears a volume where that is due, and formats it.
func (v *volumes) fill(ctx context.Context, made lvm.Volume, d farm.ScratchDisk) error {
	zeros := made.Pool != ""
	if !zeros && v.settings.Wipe == lvm.WipeStart {
		if err := lvm.Clear(ctx, made.Path(), lvm.WipeStart); err != nil {
			return err
		}
		zeros = true
	}
	extended := "lazy_itable_init=0"
	if zeros {
		extended = "assume_storage_prezeroed=1"
	}
	return format(ctx, d, made.Path(), d.Size&^4095, extended)
}

// node makes a device file of the device at from.
func node(file, from string) error {
	var s unix.Stat_t
	if err := unix.Stat(from, &s); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("%s is not a block device", from)
	}
	if err := unix.Mknod(file, unix.S_IFBLK|0o600, int(s.Rdev)); err != nil {
		return &fs.PathError{Op: "mknod", Path: file, Err: err}
	}
	return nil
}

// Attach makes the device files of a VM's volumes anew: after a reboot of the host devices have other numbers.
func (p *Pool) Attach(vm string, disks []farm.ScratchDisk) error {
	for _, d := range disks {
		if d.On != farm.OnVolume && d.On != farm.OnThin {
			continue
		}
		v := p.volumes.Load()
		if v == nil {
			return notReady()
		}
		place, ok := v.settings.at(d.On)
		if !ok {
			return NoStorage(d.On)
		}
		file := filepath.Join(p.dir, vm, FileOf(d))
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return poolError(file, err)
		}
		if err := node(file, "/dev/"+place.Group+"/"+volumeName(vm, d.Name)); err != nil {
			return poolError(file, err)
		}
	}
	return nil
}

// remove removes a volume, cleared first where that is due.
func (v *volumes) remove(ctx context.Context, gone lvm.Volume) error {
	if w := v.settings.Wipe; gone.Pool == "" && w != lvm.WipeStart {
		if err := lvm.Clear(ctx, gone.Path(), w); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := v.lvm.Remove(ctx, gone); err != nil {
		return err
	}
	v.forget(gone)
	return nil
}

// CleanVolumes removes the volumes of this pool whose VMs have no directory any more, which may take as long as it
// takes to clear them, and reads anew what there is. Whatever ended while a process was killed is among them. done is
// called for each.
func (p *Pool) CleanVolumes(ctx context.Context, done func(lvm.Volume, error)) error {
	v := p.volumes.Load()
	if v == nil {
		return nil
	}
	if err := v.refresh(ctx); err != nil {
		return err
	}
	gone := v.unowned(p)
	if len(gone) == 0 {
		return nil
	}
	for _, x := range gone {
		done(x, v.remove(ctx, x))
	}
	return v.refresh(ctx) // for the room that there is now
}

// unowned are those whose VMs have no directory. It reads directories after volumes: a VM has its directory first.
func (v *volumes) unowned(p *Pool) (all []lvm.Volume) {
	for _, x := range v.now().Volumes {
		if x.Owner != v.owner {
			continue
		}
		if _, err := p.root.Lstat(x.VM); errors.Is(err, fs.ErrNotExist) {
			all = append(all, x)
		}
	}
	return all
}

// RemoveVolumes removes the volumes of a VM without a directory that need not be cleared first; the others are
// CleanVolumes'. What cannot be removed is, too.
func (p *Pool) RemoveVolumes(ctx context.Context, vm string) error {
	v := p.volumes.Load()
	if v == nil {
		return nil
	}
	var errs []error
	for _, x := range v.of(vm) {
		if x.Pool != "" || v.settings.Wipe == lvm.WipeStart {
			errs = append(errs, v.remove(ctx, x))
		}
	}
	return errors.Join(errs...)
}

// PlaceOf is where disks of a storage lie, as Space names it; "" for files.
func (s Volumes) PlaceOf(on farm.Storage) string {
	if place, ok := s.at(on); ok {
		return place.String()
	}
	return ""
}

// VolumeSpace is what a place, by its name, has for volumes of further VMs, beside what was promised. It returns at
// once, from what was read last.
func (p *Pool) VolumeSpace(place string, promised map[string]farm.Bytes) (farm.DiskSpace, error) {
	v := p.volumes.Load()
	if v == nil {
		return farm.DiskSpace{}, notReady()
	}
	group, pool, _ := strings.Cut(place, "/")
	return spaceOf(v.now(), lvm.Place{Group: group, Pool: pool}, v.owner, promised)
}

// spaceOf is VolumeSpace of a report.
func spaceOf(r lvm.Report, at lvm.Place, owner string, promised map[string]farm.Bytes) (farm.DiskSpace, error) {
	if err := r.Has(at); err != nil {
		return farm.DiskSpace{}, err
	}
	has := r.Spaces[at]
	out := farm.DiskSpace{Total: has.Size, Free: has.Free, Pool: has.Free}
	used, owed := map[string]farm.Bytes{}, farm.Bytes(0)
	for _, v := range r.Volumes {
		if v.Place() != at {
			continue
		}
		out.Pool += v.Used
		if name := nameOf(v.VM, promised); name != "" && v.Owner == owner {
			used[name] += v.Used
		} else {
			owed += v.Size - min(v.Size, v.Used)
		}
	}
	for name, size := range promised {
		owed += size - min(size, used[name])
	}
	if owed > out.Free {
		out.Short = owed - out.Free
	}
	out.Free -= min(out.Free, owed)
	return out, nil
}

// leastFree of a thin pool's blocks, and mostMetadata of its metadata in percent, are what a VM needs to go on.
const (
	leastFree    = 64 * farm.MiB
	mostMetadata = 95
)

// FullPlace is a thin pool with volumes of a VM that has no room for what is written; "" where all have.
func (p *Pool) FullPlace(ctx context.Context, vm string) string {
	v := p.volumes.Load()
	if v == nil || len(v.of(vm)) == 0 || v.refresh(ctx) != nil {
		return ""
	}
	r := v.now()
	for _, x := range v.of(vm) {
		s := r.Spaces[x.Place()]
		if x.Pool != "" && (s.Free < leastFree || s.Metadata > mostMetadata) {
			return x.Place().String()
		}
	}
	return ""
}

// makeFile is make of a file that fill makes itself.
func (p *Pool) makeFile(ctx context.Context, vm, name string, fill func(file string) error) (_ string, err error) {
	if err := errors.Join(checkVM(vm), ctx.Err()); err != nil {
		return "", err
	}
	err = p.root.Mkdir(vm, 0o700)
	isNew := err == nil
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	file := filepath.Join(p.dir, vm, name)
	if err == nil {
		if _, e := p.root.Lstat(path.Join(vm, name)); e == nil {
			err = &fs.PathError{Op: "mknod", Path: file, Err: syscall.EEXIST}
		}
	}
	if err == nil {
		err = fill(file)
	}
	if err != nil {
		if isNew {
			p.root.Remove(vm)
		}
		return "", diskError(file, err)
	}
	return file, nil
}

// Owner is the word by which the pool in a directory knows its volumes again.
func Owner(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, ownerFile))
	return string(text), err
}

// Taken is what a file takes of its file system.
func Taken(path string) farm.Bytes {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return 0
	}
	return farm.Bytes(s.Blocks) * 512
}
