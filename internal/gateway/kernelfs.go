package gateway

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kernelFS are the file systems that hold no data: their files look at the kernel, its processes and its devices, or
// change them. A write to /proc/self/mem is code in the process that answers the guest; a write to a control group's
// cgroup.procs moves processes of the host. The list is of types (statfs(2)), for a path says nothing: they can be
// mounted anywhere. A type that is not listed holds data: sites have file systems of their own.
var kernelFS = map[uint32]string{
	unix.PROC_SUPER_MAGIC:      "proc",
	unix.SYSFS_MAGIC:           "sysfs",
	unix.CGROUP_SUPER_MAGIC:    "cgroup",
	unix.CGROUP2_SUPER_MAGIC:   "cgroup2",
	unix.DEBUGFS_MAGIC:         "debugfs",
	unix.TRACEFS_MAGIC:         "tracefs",
	unix.BPF_FS_MAGIC:          "bpf",
	unix.SECURITYFS_MAGIC:      "securityfs",
	unix.SELINUX_MAGIC:         "selinuxfs",
	unix.SMACK_MAGIC:           "smackfs",
	0x5a3c69f0:                 "apparmorfs",
	0x62656570:                 "configfs",
	unix.DEVPTS_SUPER_MAGIC:    "devpts",
	0x19800202:                 "mqueue",
	unix.NSFS_MAGIC:            "nsfs",
	unix.PID_FS_MAGIC:          "pidfs",
	unix.BINFMTFS_MAGIC:        "binfmt_misc",
	unix.EFIVARFS_MAGIC:        "efivarfs",
	unix.PSTOREFS_MAGIC:        "pstore",
	0x7655821:                  "resctrl",
	unix.HUGETLBFS_MAGIC:       "hugetlbfs",
	0x65735543:                 "fusectl",
	0x67596969:                 "rpc_pipefs",
	0x6e667364:                 "nfsd",
	unix.BINDERFS_SUPER_MAGIC:  "binder",
	0xa647361d:                 "functionfs",
	0xaee71ee7:                 "gadgetfs",
	unix.XENFS_SUPER_MAGIC:     "xenfs",
	unix.USBDEVICE_SUPER_MAGIC: "usbfs",
	unix.OPENPROM_SUPER_MAGIC:  "openpromfs",
	0x687970:                   "s390_hypfs",
	0x23c9b64e:                 "spufs",
	0x76a9f425:                 "ocfs2_dlmfs",
}

// RefusedError says that a directory is on a file system of the kernel's own, which no VM is shown.
type RefusedError struct{ Dir, Type string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is on %s, by which processes and devices of the host are controlled", e.Dir, e.Type)
}

// errKernelFS and errOtherFS are what an honest guest sees of files that it does not get.
const (
	errKernelFS = unix.EACCES
	errOtherFS  = unix.EXDEV // as openat2 says with RESOLVE_NO_XDEV
)

// sharedMemory is where processes of one user share memory: by names directly in it.
const sharedMemory = "/dev/shm"

// devices are the file systems of device nodes and of memory that processes share. To statfs(2) they are like any other
// in memory, so they are known by number, where nothing else that may be bound has the same.
func devices() map[uint64]string {
	found := map[uint64]string{}
	for dir, name := range map[string]string{"/dev": "devtmpfs", sharedMemory: "the host's shared memory"} {
		if dev, _, ok := deviceOf(dir); ok {
			found[dev] = name
		}
	}
	for _, dir := range []string{"/", "/tmp", "/var/tmp", "/run", "/home"} {
		if dev, _, ok := deviceOf(dir); ok {
			delete(found, dev)
		}
	}
	return found
}

// deviceOf returns the numbers of the file system that a directory is on and of the directory, where it is no link to
// one.
func deviceOf(dir string) (dev, ino uint64, ok bool) {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	return uint64(st.Dev), st.Ino, err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// dataTime is how long a file system of another number than the bind's own is believed to hold data: statfs(2) asks the
// server of a network's file system each time. The number can only come to mean another one when root on the host
// unmounts the one and mounts the other.
const dataTime = 2 * time.Second

// kinds lists file systems that hold data, and those that do not.
type kinds struct {
	devices map[uint64]string // refused by number

	mu   sync.Mutex
	data map[uint64]time.Time // numbers of those that held data, and when that was looked at
}

// kernel is the name of the kernel's file system that fd is on; "" for one that holds data.
func (k *kinds) kernel(fd int, dev uint64) (string, error) {
	if name := k.devices[dev]; name != "" {
		return name, nil
	}
	if k.knownData(dev) {
		return "", nil
	}
	var s unix.Statfs_t
	for {
		if err := unix.Fstatfs(fd, &s); err == nil {
			break
		} else if err != unix.EINTR {
			return "", err
		}
	}
	if name := kernelFS[uint32(s.Type)]; name != "" {
		return name, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil || len(k.data) > 1000 {
		k.data = map[uint64]time.Time{}
	}
	k.data[dev] = time.Now()
	return "", nil
}

func (k *kinds) knownData(dev uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.data[dev]
	return ok && time.Since(at) < dataTime
}

// admit refuses what is open as fd where no guest may have it: after it was opened, so that no name can have come to
// mean something else. The bind's own file system was looked at by Open, and stays as long as we hold it.
func (b *bound) admit(fd int) error {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	dev := number(&st)
	if dev == b.dev {
		return nil
	}
	if b.OneFileSystem {
		return errOtherFS
	}
	name, err := b.kinds.kernel(fd, dev)
	if err == nil && name != "" {
		err = errKernelFS
	}
	return err
}

func number(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// refused returns why a directory that was opened, of this inode number, cannot be bound. One below /dev/shm can: batch
// systems make those of their jobs there.
func (d *Directory) refused(ino uint64) error {
	if dev, top, ok := deviceOf(sharedMemory); ok && dev == d.dev && ino != top && !d.onDev() {
		return nil
	}
	name, err := d.kinds.kernel(d.fd, d.dev)
	if err != nil {
		return &os.PathError{Op: "statfs", Path: d.root.Name(), Err: err}
	}
	if name != "" {
		return &RefusedError{d.root.Name(), name}
	}
	return nil
}

// onDev reports whether the directory is on the file system of /dev itself.
func (d *Directory) onDev() bool {
	dev, _, ok := deviceOf("/dev")
	return ok && dev == d.dev
}
