package inside

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modulesFile lists the kernel modules of the micro image: lines "GROUP PATH", in the order to load them.
const modulesFile = "/etc/grange/modules"

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

var systemMounts = []mount{
	{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"dev", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666,gid=5"},
	{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"cgroup", "/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
}

// bringUp does what an init does, and no more than a job needs.
func bringUp() error {
	for _, m := range systemMounts {
		os.MkdirAll(m.target, 0o755)
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	os.Chmod("/", 0o755) // the kernel gives everybody the right to write to a root in memory
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1",
		"/dev/stderr": "fd/2"} {
		os.Symlink(target, link)
	}
	return loadModules("boot")
}

// deviceModes are those that udev gives by its default rules. The kernel alone would leave these devices to root.
var deviceModes = map[string]os.FileMode{"fuse": 0o666, "net/tun": 0o666, "ptmx": 0o666, "rfkill": 0o664, "tty": 0o666}

// openDevices makes /dev/fuse, and gives devices the modes that programs expect. A kernel without FUSE has no device.
func openDevices(dev string) {
	if err := loadModules("fuse"); err != nil {
		logf("%v", err)
	}
	for name, mode := range deviceModes {
		if err := os.Chmod(filepath.Join(dev, name), mode); err != nil && !errors.Is(err, os.ErrNotExist) {
			logf("%v", err)
		}
	}
}

// loadModules loads one group of the micro image's modules. A full image has no list: udev loads what it needs.
func loadModules(group string) error {
	list, err := openInitramfs(modulesFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		of, path, _ := strings.Cut(lines.Text(), " ")
		if of != group {
			continue
		}
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := openInitramfs(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != unix.EEXIST {
		return err
	}
	return nil
}
