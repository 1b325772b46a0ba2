package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// initramfs is what this VM started in, once the file system of a container took its place: modules are there. No name
// leads there any more.
var initramfs *os.Root

// Where the parts of a container's root lie, in the initramfs.
const (
	rootLower = "/run/root/image"
	rootUpper = "/run/root/written"
	rootNew   = "/run/root/new"
)

// systemDirs are what the VM itself provides in any root: mounts of its own.
var systemDirs = []string{"proc", "sys", "dev", "tmp"}

// enterRoot makes the file system of a container the root of this VM and of all that will run in it. What is written
// goes to memory, or to the scratch disk if there is one.
func enterRoot(r guest.Root, scratch string) error {
	for _, group := range []string{"disk", r.Format, "overlay"} {
		if err := loadModules(group); err != nil {
			return err
		}
	}
	for _, dir := range []string{rootLower, rootUpper, rootNew} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	device, err := findDisk(r.Serial)
	if err != nil {
		return err
	}
	if err := unix.Mount(device, rootLower, r.Format, unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the image, of format %s: %w", r.Format, err)
	}
	if err := mountWritten(scratch); err != nil {
		return err
	}
	if err := fillRoot(rootNew, scratch); err != nil {
		return err
	}
	if initramfs, err = os.OpenRoot("/"); err != nil {
		return err
	}
	if err := os.Chdir(rootNew); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), os.Chdir("/")); err != nil {
		return err
	}
	return errors.Join(writeSystemFiles(), makeWorkdir(r.Workdir))
}

// mountWritten puts a layer for what is written over the image.
func mountWritten(scratch string) error {
	source, fstype, flags, data := "root", "tmpfs", uintptr(0), "mode=0755"
	if scratch != "" {
		device, err := findDisk(scratch)
		if err != nil {
			return err
		}
		source, fstype, flags, data = device, "ext4", unix.MS_NOATIME, ""
	}
	if err := unix.Mount(source, rootUpper, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	for _, dir := range []string{"upper", "work", "tmp"} {
		if err := os.Mkdir(filepath.Join(rootUpper, dir), 0o755); err != nil {
			return err
		}
	}
	if info, err := os.Stat(rootLower); err == nil { // the root directory is the upper layer's
		os.Chmod(filepath.Join(rootUpper, "upper"), info.Mode().Perm()|0o555)
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%[2]s/upper,workdir=%[2]s/work", rootLower, rootUpper)
	if err := unix.Mount("root", rootNew, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	return nil
}

// fillRoot moves to the new root what the VM provides itself. Whatever the image has in these places, nothing is
// mounted outside of it.
func fillRoot(root, scratch string) error {
	for _, dir := range systemDirs {
		target := filepath.Join(root, dir)
		if info, err := os.Lstat(target); err == nil && !info.IsDir() {
			if err := os.Remove(target); err != nil {
				return err
			}
		}
		if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		source, flags := "/"+dir, uintptr(unix.MS_MOVE)
		if dir == "tmp" && scratch != "" {
			source, flags = filepath.Join(rootUpper, "tmp"), unix.MS_BIND
			if err := unix.Chmod(source, 0o1777); err != nil {
				return err
			}
		}
		if err := unix.Mount(source, target, "", flags, ""); err != nil {
			return fmt.Errorf("mount %s in the image: %w", dir, err)
		}
		if flags == unix.MS_BIND {
			err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "")
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSystemFiles writes what a container runtime gives each container, and no image has as its own.
func writeSystemFiles() error {
	for _, dir := range []string{"/etc", "/run", "/var/tmp", "/var/lib"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Chmod("/var/tmp", 0o1777); err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/hostname":    name + "\n",
		"/etc/hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + name + "\n",
		"/etc/resolv.conf": "",
	} {
		// In an image these may be links to nowhere, or to what must not change with them.
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink("/proc/self/mounts", "/etc/mtab"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// nameHost adds the VM's own name to a file of hosts, where many programs look it up.
func nameHost(hosts, name string) error {
	text, err := os.ReadFile(hosts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.Contains(strings.Fields(string(text)), name) {
		return err
	}
	f, err := os.OpenFile(hosts, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "127.0.1.1 %s\n", name)
	return errors.Join(err, f.Close())
}

// makeWorkdir makes the image's own working directory, as runtimes do where it is missing.
func makeWorkdir(dir string) error {
	if dir == "" {
		return nil
	}
	return os.MkdirAll(dir, 0o755)
}

// openInitramfs opens a file of what this VM started in, given its absolute path.
func openInitramfs(path string) (*os.File, error) {
	if initramfs == nil {
		return os.Open(path)
	}
	return initramfs.Open(path[1:])
}
