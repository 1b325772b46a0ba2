package gatewaytest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Identities of the suite, none of which any host has. Root is root in the VM.
var (
	someone = Identity{UID: 640001, GID: 640001, Groups: []uint32{640002}}
	another = Identity{UID: 640003, GID: 640003}
	root    = Identity{}
)

// vm is a VM to try a feature in, and its host.
type vm struct {
	call
	mu     sync.Mutex
	report func(string)
	link   link // nil: this process is the host and the VM by turns
	ends   []func()
	place
}

// place is where a step is done.
type place struct {
	number int // of the VM
	who    Identity
	dir    string // the directory, as it is named there; "" on the host
}

// stop is what fatal panics with.
type stop struct{}

// errorf reports a difference to what the feature promises.
func (v *vm) errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report(fmt.Sprintf(format, args...))
}

// fatalf is errorf for what leaves nothing to try.
func (v *vm) fatalf(format string, args ...any) {
	v.errorf(format, args...)
	panic(stop{})
}

func (v *vm) must(what string, err error) {
	if err != nil {
		v.fatalf("%s: %v", what, err)
	}
}

// want compares how a call ended with one or several ways in which it may; 0 is success.
func (v *vm) want(what string, err error, errnos ...syscall.Errno) {
	got, _ := err.(syscall.Errno)
	for _, errno := range errnos {
		if err == errno || errno == 0 && err == nil || err != nil && slices.Contains(v.Instead[errno], got) {
			return
		}
	}
	v.errorf("%s: %v (%s), not %v", what, err, unix.ErrnoName(got), errnos)
}

// at is how a VM names the directory: where the VM is a part of this machine, as a process does whose root holds the
// mounted directory and nothing else.
func (v *vm) at(number int) string {
	if v.link != nil {
		return v.VMs[number]
	}
	return "/" + filepath.Base(v.VMs[number])
}

// together runs all of do at the same time, each in the VM as a process of its own: descriptors and locks are its own,
// beside those that the host's side has open. Files are used by descriptors, for those of an *os.File may be closed by
// another thread.
func (v *vm) together(do ...func()) {
	var wait sync.WaitGroup
	failed := make(chan any, len(do))
	for _, do := range do {
		wait.Go(func() {
			runtime.LockOSThread() // the thread ends with this goroutine, and its identity with it
			with := v.caught(func() {
				v.become()
				do()
			})
			if with != nil {
				failed <- with
			}
		})
	}
	wait.Wait()
	select {
	case r := <-failed:
		panic(r)
	default:
	}
}

func (v *vm) become() {
	v.must("unshare", unix.Unshare(unix.CLONE_FS|unix.CLONE_FILES))
	if v.link == nil {
		unix.Close(connection)
		v.must("chroot", unix.Chroot(filepath.Dir(v.VMs[v.number])))
	}
	v.must("chdir", unix.Chdir("/"))
	unix.Umask(0o022)
	v.must("become", setIdentity(v.who))
}

// program makes a program that runs in the VM's files.
func (v *vm) program(who Identity, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(v.VMs[0], name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.UID, Gid: who.GID,
		Groups: who.Groups}}
	return cmd
}

// connection is the descriptor that is closed to have the connection end.
const connection = 3

// disconnect has the connection between host and VM end, and returns when it has.
func (v *vm) disconnect() {
	unix.Close(connection)
	io.Copy(io.Discard, os.Stdin)
}

// path is that of a name, where we are: in the VM or on the host.
func (v *vm) path(name string) string {
	if v.dir == "" {
		return v.host(name)
	}
	return v.dir + "/" + name
}

// host is the path of a name on the host.
func (v *vm) host(name string) string { return filepath.Join(v.Host, name) }

// open opens or creates a file.
func (v *vm) open(name string, flags int, mode uint32) int {
	fd, err := unix.Open(v.path(name), flags|unix.O_CLOEXEC, mode)
	v.must("open "+name, err)
	return fd
}

// write replaces a file's content.
func (v *vm) write(name, text string) {
	fd := v.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o644)
	v.pwrite(fd, text, 0)
	v.must("close", unix.Close(fd))
}

func (v *vm) pwrite(fd int, text string, off int64) {
	if n, err := unix.Pwrite(fd, []byte(text), off); err != nil || n != len(text) {
		v.fatalf("a write of %d bytes at %d: %d, %v", len(text), off, n, err)
	}
}

// pread reads up to n bytes.
func (v *vm) pread(fd, n int, off int64) string {
	buf := make([]byte, n)
	n, err := unix.Pread(fd, buf, off)
	v.must(fmt.Sprintf("a read at %d", off), err)
	return string(buf[:n])
}

// holds compares a file's content.
func (v *vm) holds(name, text string) {
	fd := v.open(name, unix.O_RDONLY, 0)
	defer unix.Close(fd)
	if got := v.pread(fd, len(text)+100, 0); got != text {
		v.errorf("%s holds %q, not %q", name, got, text)
	}
}

// give makes a file on the host that is somebody's.
func (v *vm) give(name, text string, mode uint32, to Identity) {
	path := v.host(name)
	v.must("write", os.WriteFile(path, []byte(text), 0o600))
	v.must("chown", os.Chown(path, int(to.UID), int(to.GID)))
	v.must("chmod", unix.Chmod(path, mode))
}

func (v *vm) mkdir(name string, mode uint32) { v.must("mkdir "+name, unix.Mkdir(v.path(name), mode)) }

// stat is a file's status, as the host knows it now and not as somebody remembers it.
func (v *vm) stat(name string) unix.Statx_t {
	var st unix.Statx_t
	v.must("stat "+name, unix.Statx(unix.AT_FDCWD, v.path(name), unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC,
		unix.STATX_BASIC_STATS, &st))
	return st
}

func (v *vm) fstat(fd int) unix.Statx_t {
	var st unix.Statx_t
	v.must("fstat", unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
	return st
}
