package confine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// Server is what Start is asked for.
type Server struct {
	Gateway   farm.Gateway
	Program   string   // an absolute path
	Command   []string // starts Run in a process of its own
	Directory *os.File // of Clone
	ReadOnly  bool     // as Clone was asked
	Listener  *os.File // a unix socket, on which QEMU will call
	Words     *os.File // takes why the server ended
	UID, GID  uint32   // whose rights it has
	Groups    []uint32
	Files     uint64 // how many it may have open
	// Place is called with the process before it does anything, as to put it into control groups. nil: it stays.
	Place func(pid int) error
}

// startLimit is for some mounts and two programs to start, on a host that is very busy.
const startLimit = time.Minute

// Start starts a server. The process that is returned ends with it, and takes it along when it is killed. It outlives
// this one. Error: CodeNoGateway, where no later try will do better.
func Start(ctx context.Context, s Server) (pid int, err error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	in, order, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer order.Close()
	report, out, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, in.Close())
	}
	defer report.Close()
	cmd := s.command(in, out)
	err = onHost(cmd.Start)
	in.Close()
	out.Close()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EPERM) {
		return 0, s.refused("see /proc/sys/user/max_user_namespaces; or "+HintFUSE,
			"no user namespace is to be had: %v", err)
	}
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", s.Program, err)
	}
	defer func() { go cmd.Wait() }() // until then one that dies keeps its number
	if err := s.begin(ctx, cmd.Process.Pid, order, report); err != nil {
		cmd.Process.Kill()
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// begin lets the process go on, and waits until the server runs.
func (s Server) begin(ctx context.Context, pid int, in, report *os.File) error {
	if s.Place != nil {
		if err := s.Place(pid); err != nil {
			return err
		}
	}
	if err := limit(pid, s.Files); err != nil {
		return fmt.Errorf("limits of %s: %w", s.Program, err)
	}
	// the agent is the last that the kernel ends for want of memory, and this is not the agent
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0); err != nil {
		return err
	}
	text, err := json.Marshal(Order{s.Gateway, s.Program, s.ReadOnly, s.caller()})
	if err != nil {
		return err
	}
	if _, err := in.Write(text); err != nil {
		return fmt.Errorf("start %s: %w", s.Program, err)
	}
	in.Close()
	if err := report.SetReadDeadline(time.Now().Add(startLimit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { report.SetReadDeadline(time.Now()) })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(report, 4096))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.refused(HintFUSE, "it did not start within %v: the file system may not answer", startLimit)
	case err != nil:
		return fmt.Errorf("start %s: %w", s.Program, err)
	case !bytes.Equal(said, []byte(started)):
		return s.refused(HintFUSE, "%s", cmp.Or(string(said), "its process ended before the server ran"))
	}
	return nil
}

// limit bounds how many files the process may have open: as many as are asked for, or as we may have where it is not
// for us to give more. It leaves no core file, which would hold what is the guest's.
func limit(pid int, files uint64) error {
	var ours unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &ours); err != nil {
		return err
	}
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files}, nil)
	if errors.Is(err, unix.EPERM) && files > ours.Max {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: ours.Max, Max: ours.Max}, nil)
	}
	return errors.Join(err, unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil))
}

func (s Server) caller() Caller { return Caller{s.UID, s.GID, s.Groups} }

func (s Server) refused(hint, format string, args ...any) error {
	return Refused(hint, "%s: "+format, append([]any{s.Gateway}, args...)...)
}

// check refuses callers whose rights no user namespace can hold to.
func (s Server) check() error {
	c := s.caller()
	switch {
	case c.UID == 0 || c.GID == 0:
		return s.refused(HintFUSE, "binds of root are not served by it: nothing would keep the guest from root's rights")
	case len(mapText(c.groups())) >= os.Getpagesize() || len(filter(c)) > maxInstructions:
		return s.refused(HintFUSE, "the caller is in %d groups, more than a user namespace can know", len(c.groups()))
	}
	for _, gid := range c.groups() {
		if gid == 0 {
			return s.refused(HintFUSE, "the caller is in root's group")
		}
	}
	return nil
}

// maxInstructions is how many the kernel takes as a filter: BPF_MAXINSNS.
const maxInstructions = 4096

// idMap has IDs be themselves, and there is no other one.
func idMap(ids []uint32) []syscall.SysProcIDMap {
	var m []syscall.SysProcIDMap
	for _, id := range ids {
		if n := len(m); n > 0 && m[n-1].HostID+m[n-1].Size == int(id) {
			m[n-1].Size++
			continue
		}
		m = append(m, syscall.SysProcIDMap{ContainerID: int(id), HostID: int(id), Size: 1})
	}
	return m
}

// mapText is such a map as it is written for the kernel, which takes no more than a page.
func mapText(ids []uint32) string {
	text := ""
	for _, e := range idMap(ids) {
		text += fmt.Sprintf("%d %d %d\n", e.ContainerID, e.HostID, e.Size)
	}
	return text
}

// command is the process before it is the server's: the job's user, in namespaces of its own, with what it takes there
// to confine the server further.
func (s Server) command(in, report *os.File) *exec.Cmd {
	c := s.caller()
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = "/", Environment, in
	cmd.ExtraFiles = []*os.File{s.Directory, s.Listener, report, s.Words}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
		UidMappings: idMap([]uint32{c.UID}), GidMappings: idMap(c.groups()), GidMappingsEnableSetgroups: true,
		Credential:  &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.groups()},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SETPCAP}}
	return cmd
}

// onHost calls do on a thread that has the mounts of the host's init: a service's own hide parts of /proc, and the
// kernel then lets nobody mount one anew.
func onHost(do func() error) error {
	return onThread(func() error {
		if err := enterMounts("/proc/1/ns/mnt"); err != nil && !errors.Is(err, unix.EACCES) {
			return err // in a container whose init has more rights than we, ours have to do
		}
		return do()
	})
}

// onThread calls do on a thread that ends afterwards. Go ends it with a goroutine that has not unlocked it, but for the
// main thread, in whose name others read our files in /proc.
func onThread(do func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			failed <- onThread(do) // on another one, while we hold this
			runtime.UnlockOSThread()
			return
		}
		failed <- do()
	}()
	return <-failed
}

// enterMounts has this thread see the mounts of a namespace, where it does not yet.
func enterMounts(namespace string) error {
	var theirs, ours unix.Stat_t
	if err := unix.Stat(namespace, &theirs); err != nil {
		return fmt.Errorf("%s: %w", namespace, err)
	}
	if err := unix.Stat("/proc/thread-self/ns/mnt", &ours); err != nil {
		return err
	}
	if theirs.Ino == ours.Ino && theirs.Dev == ours.Dev {
		return nil
	}
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", namespace, err)
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mounts of %s: %w", namespace, err)
	}
	return nil
}
