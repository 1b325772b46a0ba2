package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// useDisks mounts the further scratch disks of a VM, and has it swap.
func useDisks(disks []guest.Disk) error {
	if len(disks) == 0 {
		return nil
	}
	if err := loadModules("disk"); err != nil {
		return err
	}
	for _, d := range disks {
		if err := useDisk(d); err != nil {
			return fmt.Errorf("scratch %s%s: %w", d.Serial, d.Path, err)
		}
	}
	return nil
}

func useDisk(d guest.Disk) error {
	switch {
	case d.Path == "":
		return swapOn(d.Serial)
	case !filepath.IsAbs(d.Path) || filepath.Clean(d.Path) != d.Path:
		return errors.New("not an absolute path")
	case d.Serial != "":
		return mountDisk(d.Serial, d.Path)
	}
	if err := os.MkdirAll(d.Path, 0o755); err != nil {
		return err
	}
	return unix.Mount("scratch", d.Path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("mode=1777,size=%d", d.Size))
}

// mountDisk mounts the disk with that serial, whose file system the host has made. All may write there.
func mountDisk(serial, path string) error {
	device, err := findDisk(serial)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(device, path, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	os.Remove(filepath.Join(path, "lost+found"))
	return unix.Chmod(path, 0o1777)
}

// swapOn has the VM swap to the disk with that serial. What it no longer needs there goes back to the host.
func swapOn(serial string) error {
	const discard = 0x10000
	device, err := findDisk(serial)
	if err != nil {
		return err
	}
	name, err := unix.BytePtrFromString(device)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), discard, 0)
	if errno != 0 && errno != unix.EBUSY {
		return fmt.Errorf("swap on %s: %w", device, errno)
	}
	return nil
}
