// Package sandbox starts programs of the host that parse data of strangers, as images and packages, without the rights
// of the process that starts them: a hole in such a program is nothing to root. Where the process is not root, the
// program stays its user's, and only gains nothing by exec.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstUID begins 2^24 user IDs that nobody has: they are above what directory services and subuid files give out, and
// below what systemd does. A process adds its ID, so that the programs of two never meet under one. Nothing that is
// kept belongs to such a user.
const firstUID = 0x7f000000

// UID returns the user that programs run as, and the group: of this process only, without an account. The process's own
// where it is not root.
func UID() int {
	if uid := os.Geteuid(); uid != 0 {
		return uid
	}
	return firstUID + os.Getpid()
}

const (
	root      = "/tmp" // where the file system of a reader is put together, in a mount namespace of its own
	inputFile = "/input"
	outputDir = "/tmp"
	workDir   = "/work" // of a converter
)

// InputPath returns the path under which the program of StartReader sees its input.
func InputPath(input *os.File) string {
	if os.Geteuid() != 0 {
		return input.Name()
	}
	return inputFile
}

// readerLimits are for programs that print what they find: a hostile file may ask for more.
var readerLimits = []string{"--as=4294967296", "--core=0", "--fsize=0", "--nofile=256", "--nproc=128"}

// fetcherLimits are for programs that download packages.
var fetcherLimits = []string{"--as=4294967296", "--core=0", "--fsize=8589934592", "--nofile=1024", "--nproc=128"}

// StartReader starts cmd, whose path is absolute, where there is nothing but the host's programs and libraries, and
// input, which others must be allowed to read, at InputPath; input may be nil. There is no network, no other process
// and nothing that can be written. When err is nil, release must be called once cmd.Wait has returned.
func StartReader(cmd *exec.Cmd, input *os.File) (release func(), err error) {
	return start(cmd, readerLimits, input, func(attr *syscall.SysProcAttr, m mount) error {
		if err := readerRoot(m); err != nil {
			return err
		}
		attr.Chroot = root
		attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		cmd.Dir = "/"
		return nil
	})
}

// StartConverter is StartReader of a program that writes: dir, which becomes its own, is the directory it runs in, and
// all that it can write to. No file there may have more than most bytes. What it leaves in dir is as untrusted as what
// it read. When err is nil, release must be called once cmd.Wait has returned.
func StartConverter(cmd *exec.Cmd, dir *os.File, most int64) (release func(), err error) {
	cmd.Dir = dir.Name()
	limits := []string{"--as=4294967296", "--core=0", "--fsize=" + strconv.FormatInt(most, 10), "--nofile=256",
		"--nproc=128"}
	return start(cmd, limits, dir, func(attr *syscall.SysProcAttr, m mount) error {
		if err := dir.Chown(UID(), UID()); err != nil {
			return err
		}
		if err := readerRoot(noMount, workDir); err != nil {
			return err
		}
		if err := m.at(root+workDir, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
		attr.Chroot = root
		attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		cmd.Dir = workDir
		return nil
	})
}

// StartFetcher starts cmd, whose path is absolute, in the directory dir, which becomes its own to write in. It sees the
// host's files and network as any account does. When err is nil, release must be called once cmd.Wait has returned.
func StartFetcher(cmd *exec.Cmd, dir *os.File) (release func(), err error) {
	cmd.Dir = dir.Name()
	return start(cmd, fetcherLimits, dir, func(attr *syscall.SysProcAttr, m mount) error {
		if err := dir.Chown(UID(), UID()); err != nil {
			return err
		}
		// The directories above dir may be closed to others. The host's own /tmp is nothing to the program.
		cmd.Dir = outputDir
		// The processes that it leaves end with it, in any session. They see no other program of this user.
		attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		return m.at(outputDir, unix.MS_NOSUID|unix.MS_NODEV)
	})
}

// confinement says what a program that is about to be started has, beside what inherit takes from all.
type confinement func(*syscall.SysProcAttr, mount) error

// start starts cmd on a thread that has lost what programs inherit. When we are root confine is called there, in a
// mount namespace of its own, with a mount of f.
func start(cmd *exec.Cmd, limits []string, f *os.File, confine confinement) (release func(), err error) {
	if _, err := os.Stat(cmd.Path); err != nil {
		return nil, err
	}
	cmd.Args = append(append([]string{"prlimit"}, limits...), append([]string{"--", cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = "/usr/bin/prlimit"
	// It has no terminal, its children are killed with it, and the thread that started it lives on until it is
	// released.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	started, released := make(chan error), make(chan struct{})
	go onThreadOfItsOwn(func() {
		err := inherit(cmd.SysProcAttr, f, confine)
		if err != nil {
			err = fmt.Errorf("%s: no sandbox: %w", filepath.Base(cmd.Args[len(limits)+2]), err)
		} else {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			<-released
		}
	})
	return func() { close(released) }, <-started
}

// onThreadOfItsOwn calls f on a thread that ends afterwards: Go does that to threads of goroutines that end without
// unlocking them, but for the main thread, in whose name others read our files in /proc.
func onThreadOfItsOwn(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onThreadOfItsOwn(f) }() // on another thread, while we hold this one
	<-done
	runtime.UnlockOSThread()
}

// inherit takes from this thread what a program that it starts must not have.
func inherit(attr *syscall.SysProcAttr, f *os.File, confine confinement) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := keepFiles(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	m, err := mountOf(f)
	if err != nil {
		return err
	}
	defer m.close()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := confine(attr, m); err != nil {
		return err
	}
	// Root's keys: who possesses the ring of their session may read them, whoever that is.
	_, err = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("keyring: %w", err)
	}
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the kernel has no more of them
		} else if err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	attr.Credential = &syscall.Credential{Uid: uint32(UID()), Gid: uint32(UID())} // and no further groups
	return nil
}

// keepFiles has no program inherit what our own parent left open to us, as a shell does: what we open ourselves no
// program inherits in any case.
func keepFiles() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// readerRoot puts a file system together at root, with empty directories for what is mounted later. There is no /proc,
// no /dev and no socket of the host in it, and a process that is chrooted makes no user namespaces.
func readerRoot(input mount, dirs ...string) error {
	const options = "mode=0755,size=64k,nr_inodes=64"
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		if err := readerDir(dir); err != nil {
			return err
		}
	}
	const cache = "/etc/ld.so.cache"
	if _, err := os.Stat(cache); err == nil {
		if err := os.Mkdir(root+"/etc", 0o755); err != nil {
			return err
		}
		if err := place(root + cache); err != nil {
			return err
		}
		if err := bind(cache, root+cache, readOnly|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	if input != noMount {
		if err := place(root + inputFile); err != nil {
			return err
		}
		if err := input.at(root+inputFile, readOnly|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// place makes an empty file, for a mount to cover. It is not opened: a program that another thread starts at this
// moment would have it open for writing until it runs, and the file system could not be made read-only.
func place(path string) error {
	if err := unix.Mknod(path, unix.S_IFREG|0o644, 0); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	return nil
}

// readerDir gives the new root one directory of the host, or the link that stands for it where /usr is merged.
func readerDir(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(dir)
		if err != nil {
			return err
		}
		return os.Symlink(to, root+dir)
	}
	if err := os.Mkdir(root+dir, 0o755); err != nil {
		return err
	}
	return bind(dir, root+dir, readOnly)
}

const readOnly = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV

// bind mounts from at to.
func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	return restrict(to, flags)
}

// restrict sets the flags of a bind mount, which the kernel ignores when it is made.
func restrict(path string, flags uintptr) error {
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// mount is a bind mount that is nowhere yet: what is open, whatever its name has become, for another mount namespace.
type mount int

const noMount mount = -1

// mountOf makes one of a file or a directory, or noMount of nil.
func mountOf(f *os.File) (mount, error) {
	if f == nil {
		return noMount, nil
	}
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return noMount, fmt.Errorf("mount %s: %w", f.Name(), err)
	}
	return mount(fd), nil
}

func (m mount) at(path string, flags uintptr) error {
	if err := unix.MoveMount(int(m), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return restrict(path, flags)
}

func (m mount) close() {
	if m != noMount {
		unix.Close(int(m))
	}
}
