package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/procstat"
)

// namePrefix begins the name of every machine of every agent.
const namePrefix = "grange-"

// process is a QEMU that was identified. It is held by a descriptor from then on, so that a later process with the same
// number is never taken for it.
type process struct {
	pid int
	// in clock ticks since the host booted: tells it from a later one with the same number where there is no descriptor
	start uint64
	fd    *os.File // pidfd
}

// pidFiles is the directory where libvirt's QEMU driver keeps a pid file for each domain: beside its sockets.
type pidFiles string

func pidFilesOf(socket string) pidFiles { return pidFiles(filepath.Join(filepath.Dir(socket), "qemu")) }

// file is the pid file of a machine.
func (f pidFiles) file(machine string) string { return filepath.Join(string(f), machine+".pid") }

// check refuses a directory of pid files that others can write than root, or the user that libvirt gives QEMU,
// as libvirt 11.3 of Debian 13 has it. That user could have one machine's process taken for another's of the same user,
// and no other process for one: locate asks the kernel for lock, user and program.
func (f pidFiles) check(qemuUser func() (int, error)) error {
	dir := string(f)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err == nil && !onlyOwner(info) {
		err = givenToQEMU(info, qemuUser)
	}
	if err != nil {
		return &farm.Error{
			Kind: farm.Unavailable, Code: hyper.CodeUnreadable, Err: err,
			Message: fmt.Sprintf("libvirt's pid files in %s cannot be used", dir),
			Hint:    "name the socket in libvirt's own run directory, as /run/libvirt/libvirt-sock",
		}
	}
	return nil
}

// givenToQEMU returns nil for a directory that QEMU's user alone can write.
func givenToQEMU(info fs.FileInfo, qemuUser func() (int, error)) error {
	uid, err := qemuUser()
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != uid || info.Mode().Perm()&0o022 != 0 {
		return errors.New("it is not a directory that root, or QEMU's user, alone can write")
	}
	return nil
}

// onlyOwner reports whether a file is the agent's own user's, root in service, and nobody else may write it.
func onlyOwner(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

// locate finds the QEMU of a machine; nil when there is none.
//
// An ordinary account can start the real emulator with any arguments, name and UUID. What it cannot have is the lock on
// libvirt's pid file, which libvirt takes as root in the process that becomes QEMU and which ends with it, or QEMU's
// user.
func (f pidFiles) locate(e entry) (*process, error) {
	path := f.file(e.Name)
	pid, err := lockHolder(path)
	if err != nil || pid == 0 {
		return nil, err
	}
	p, err := hold(pid)
	if err != nil || p == nil {
		return nil, err
	}
	// Again, for the number may have been given away before it was held.
	if again, err := lockHolder(path); err != nil || again != pid {
		return nil, err
	}
	if !runs(pid, e) || !p.alive() {
		return nil, nil // it has ended, or is libvirt's own child that has yet to become QEMU
	}
	return p, nil
}

// lockHolder returns the process that holds libvirt's lock on a pid file; 0 when there is no file, or nobody holds it.
func lockHolder(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || !onlyOwner(info) {
		return 0, fmt.Errorf("%s is not a file that root alone can write", path)
	}
	// The first byte, as virPidFileAcquirePath locks it. A write lock takes a descriptor that can write.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("lock on %s: %w", path, err)
	}
	if lock.Type != unix.F_WRLCK || lock.Pid <= 0 {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// search looks for the QEMU of a machine whose pid file was deleted, through all processes: one that still holds that
// file, which only root could open for writing. nil when there is none.
func search(e entry) (*process, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if !runs(pid, e) {
			continue
		}
		p, err := hold(pid)
		if err != nil {
			return nil, err
		}
		if p != nil && runs(pid, e) && p.holdsDeleted(e.Name+".pid") && p.alive() {
			return p, nil
		}
	}
	return nil, nil
}

// holdsDeleted reports whether the process has a deleted file of root's open whose name was name.
func (p *process) holdsDeleted(name string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		target, err := os.Readlink(path)
		if err != nil || filepath.Base(target) != name+" (deleted)" {
			continue
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && onlyOwner(info) {
			return true
		}
	}
	return false
}

// hold opens a process; nil when it is gone.
func hold(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: a thread that is no process
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd")}
	if p.start = started(pid); !p.alive() {
		return nil, nil
	}
	return p, nil
}

// runs reports whether a process has the user and the program of a machine's QEMU.
func runs(pid int, e entry) bool {
	return hasUser(pid, e.UID) && isProgram(fmt.Sprintf("/proc/%d/exe", pid), e.Emulator)
}

// hasUser reports whether a process runs as a user with all of its user IDs: one that could still change to another is
// not QEMU yet. In a user namespace of its own a process may have any number; here it has that of the account that made
// the namespace.
func hasUser(pid, uid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			want := strconv.Itoa(uid)
			return !slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != want })
		}
	}
	return false
}

// isProgram reports whether link, a process's exe, leads to the program. A package that was upgraded under a running
// machine has left a deleted file of the same name.
func isProgram(link, program string) bool {
	is, err1 := os.Stat(link)
	want, err2 := os.Stat(program)
	if err1 == nil && err2 == nil && os.SameFile(is, want) {
		return true
	}
	target, err := os.Readlink(link)
	if err != nil || err1 != nil || !onlyOwner(is) {
		return false
	}
	real, err := filepath.EvalSymlinks(program)
	return target == program+" (deleted)" || err == nil && target == real+" (deleted)"
}

// started returns when a process started, 0 when it is gone.
func started(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	start, _ := procstat.Parse(b).Started()
	return start
}

// alive reports whether the process runs. A zombie does not: it holds no CPU and no memory.
func (p *process) alive() bool {
	if p == nil || p.start == 0 {
		return false
	}
	ended, err := p.ended(0)
	return err == nil && !ended
}

// ended waits for the process to end, for at most so many milliseconds.
func (p *process) ended(milliseconds int) (bool, error) {
	// Ready when all threads have ended.
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}, milliseconds)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// kill ends the process and returns when it is gone.
func (p *process) kill(ctx context.Context) error {
	if err := unix.PidfdSendSignal(int(p.fd.Fd()), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		ended, err := p.ended(100) // short rounds, so that ctx counts
		switch {
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", p.pid, err)
		case ended:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for process %d: %w", p.pid, context.Cause(ctx))
		case time.Now().After(deadline):
			return &farm.Error{
				Kind: farm.Unavailable, Code: hyper.CodeWillNotEnd,
				Message: fmt.Sprintf("process %d was killed and is still there after 30 seconds", p.pid),
				Hint:    "it waits for a device or file system that hangs; see its /proc/PID/stack",
			}
		}
	}
}

// observe reads the affinity of every thread, and the nodes that the guest's memory is bound to.
func (p *process) observe() (numa.Observed, error) {
	root := os.DirFS("/")
	threads, err := hostfacts.Threads(root, p.pid)
	if err != nil {
		return numa.Observed{}, err
	}
	var o numa.Observed
	vcpus := map[int]farm.CPUSet{}
	for _, t := range threads {
		switch {
		case t.VCPU != farm.NoVCPU:
			vcpus[t.VCPU] = t.Allowed
		case !strings.HasPrefix(t.Name, "IO iothread") && !strings.HasPrefix(t.Name, touchingThread):
			o.Emulator = o.Emulator.Or(t.Allowed)
		}
	}
	for i := range len(vcpus) {
		cpus, ok := vcpus[i]
		if !ok {
			return numa.Observed{}, &farm.Error{
				Kind: farm.Internal, Code: hyper.CodeUnreadable,
				Message: fmt.Sprintf("process %d has %d vCPU threads and none for vCPU %d", p.pid, len(vcpus), i),
			}
		}
		o.VCPUs = append(o.VCPUs, cpus)
	}
	memory, err := hostfacts.NodeMemory(root, p.pid)
	if nodes := memory.Nodes(); !nodes.Empty() {
		o.Nodes = nodes.List()
	}
	return o, err
}

// touchingThread starts the names of QEMU's thread contexts. They touch huge pages before the first instruction, from
// any CPU of the pages' node, and never run again.
const touchingThread = "TC "
