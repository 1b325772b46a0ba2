package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// Exit statuses of shells for commands that could not be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// runJob prepares the VM for the job, runs it, and returns when all its output is in the session. An error means that the job
// was not started.
func (g *Guest) runJob(j *guest.Job) (*guest.Exit, error) {
	binds, err := g.prepare(j)
	if err != nil {
		return nil, err
	}
	path, code := lookPath(j)
	if code != 0 {
		fmt.Fprintf(g.session.Stream(guest.StreamStderr), "grange: %s: %s\n", j.Argv[0], map[int]string{
			exitNotFound: "not found in this image", exitNotExecutable: "not executable"}[code])
		g.session.Stream(guest.StreamStdout).CloseWrite()
		g.session.Stream(guest.StreamStderr).CloseWrite()
		return &guest.Exit{Code: code}, nil
	}
	job, err := startStreams(g.session, j.Terminal)
	if err != nil {
		return nil, err
	}
	pid, end, err := g.reaper.start(func() (int, error) { return job.start(path, j) })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	g.set(guest.State{Phase: guest.Running})
	go g.listen(pid, job)
	exit := exitOf(<-end)
	g.killRest(pid)
	job.drain()
	for _, b := range binds {
		b.flush()
	}
	return exit, nil
}

// prepare makes the VM what the job expects.
func (g *Guest) prepare(j *guest.Job) ([]*bind, error) {
	if g.init {
		unix.Sethostname([]byte(j.Hostname))
	}
	if err := addUser(j.User); err != nil {
		return nil, err
	}
	for _, f := range j.Files {
		os.MkdirAll(filepath.Dir(f.Path), 0o755)
		if err := os.WriteFile(f.Path, f.Content, 0o644); err != nil {
			return nil, err
		}
	}
	if j.Network && g.init {
		if err := setUpNetwork(); err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
	}
	if j.Scratch != "" {
		if err := mountScratch(j.Scratch); err != nil {
			return nil, fmt.Errorf("scratch: %w", err)
		}
	}
	binds, err := g.mountBinds(j.Binds)
	if err != nil {
		return nil, err
	}
	if len(j.Hook) > 0 {
		if err := g.runHook(j); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(j.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("working directory %s is not in the VM; bind it, or give --workdir", j.Dir)
	}
	return binds, nil
}

// runHook runs the site's script as root, with the job's environment. Its output goes to the job's stderr; its failure
// keeps the job from starting.
func (g *Guest) runHook(j *guest.Job) error {
	const path = "/run/grange-hook"
	if err := os.WriteFile(path, j.Hook, 0o700); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	_, end, err := g.reaper.start(func() (int, error) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return 0, err
		}
		defer null.Close()
		return syscall.ForkExec(path, []string{path}, &syscall.ProcAttr{Dir: "/", Env: j.Env, Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}})
	})
	w.Close()
	if err != nil {
		return fmt.Errorf("site hook: %w", err)
	}
	io.Copy(g.session.Stream(guest.StreamStderr), r)
	if exit := exitOf(<-end); exit.Code != 0 {
		return fmt.Errorf("site hook ended with status %d", exit.Code)
	}
	return nil
}

// listen carries out what the host asks of a running job.
func (g *Guest) listen(pid int, job *streams) {
	guest.Lines(g.session.Stream(guest.StreamMessages), guest.MaxGuestLine, func(m guest.HostMessage) {
		switch {
		case m.Signal > 0:
			unix.Kill(-pid, unix.Signal(m.Signal))
		case m.Resize != nil:
			job.resize(*m.Resize)
		case m.Broken != 0:
			job.breakOutput(m.Broken)
		}
	})
}

// killRest ends what the job left behind: when the command has ended, its VM ends.
func (g *Guest) killRest(pid int) {
	if g.init {
		unix.Kill(-1, unix.SIGKILL)
		return
	}
	if os.WriteFile(filepath.Join(jobCgroup, "cgroup.kill"), []byte("1"), 0) != nil {
		unix.Kill(-pid, unix.SIGKILL)
	}
}

func exitOf(e ending) *guest.Exit {
	exit := &guest.Exit{
		Code:   e.status.ExitStatus(),
		User:   time.Duration(e.usage.Utime.Nano()),
		System: time.Duration(e.usage.Stime.Nano()),
		MaxRSS: e.usage.Maxrss,
	}
	if e.status.Signaled() {
		exit.Signal = int(e.status.Signal())
		exit.Code = 128 + exit.Signal
	}
	return exit
}

// lookPath finds the command as a shell would, in the job's own PATH. A code other than 0 is the job's exit status.
func lookPath(j *guest.Job) (path string, code int) {
	name := j.Argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(j.Dir, name)
		}
		return name, runnable(name)
	}
	code = exitNotFound
	for dir := range strings.SplitSeq(getenv(j.Env, "PATH"), ":") {
		candidate := filepath.Join(dir, name)
		if !filepath.IsAbs(candidate) {
			candidate = filepath.Join(j.Dir, candidate)
		}
		switch c := runnable(candidate); c {
		case 0:
			return candidate, 0
		case exitNotExecutable:
			code = c
		}
	}
	return "", code
}

func runnable(path string) int {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return exitNotFound
	case err != nil || info.IsDir() || info.Mode()&0o111 == 0:
		return exitNotExecutable
	}
	return 0
}

func getenv(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// jobCgroup holds the job's processes in a full image, so that all of them can be ended.
const jobCgroup = "/sys/fs/cgroup/grange-job"

func (t *streams) start(path string, j *guest.Job) (int, error) {
	defer t.closeChildEnds()
	argv := j.Argv
	attr := &syscall.ProcAttr{Dir: "/", Env: j.Env, Files: t.childFDs(), Sys: &syscall.SysProcAttr{
		Setsid:     true,
		Setctty:    t.terminal != nil,
		Credential: &syscall.Credential{Uid: j.User.UID, Gid: j.User.GID, Groups: groupIDs(j.User)},
	}}
	if os.Getpid() != 1 && os.MkdirAll(jobCgroup, 0o755) == nil {
		if dir, err := os.Open(jobCgroup); err == nil {
			defer dir.Close()
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		}
	}
	if len(j.Binds) == 0 {
		attr.Dir = j.Dir // nothing to wait for: the shorter way
	} else {
		path, argv = "/proc/self/exe", append([]string{TrampolineName, j.Dir, path}, j.Argv...)
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil && attr.Sys.UseCgroupFD { // a guest without unified cgroups
		attr.Sys.UseCgroupFD = false
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	if err == unix.ENOEXEC { // a script without "#!": shells run it themselves
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", path}, argv[1:]...), attr)
	}
	return pid, err
}

// TrampolineName is the argument 0 that makes grange-guest become the job.
const TrampolineName = "grange-guest: job"

// Trampoline becomes the job: the arguments are TrampolineName, the working directory, the program, and the job's own
// arguments. Directory and program may lie in a bound directory, whose file requests grange-guest answers; between fork and
// exec it answers nothing, so a child that looked at them there would wait for ever. It returns the exit status when it fails.
func Trampoline(args []string) int {
	dir, path, argv := args[1], args[2], args[3:]
	if err := unix.Chdir(dir); err != nil {
		fmt.Fprintf(os.Stderr, "grange: working directory %s: %v\n", dir, err)
		return exitNotExecutable
	}
	err := unix.Exec(path, argv, os.Environ())
	if err == unix.ENOEXEC { // a script without "#!": shells run it themselves
		err = unix.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "grange: %s: %v\n", path, err)
	if err == unix.ENOENT {
		return exitNotFound
	}
	return exitNotExecutable
}

func groupIDs(u guest.User) []uint32 {
	ids := []uint32{}
	for _, g := range u.Groups {
		ids = append(ids, g.GID)
	}
	return ids
}

// streams joins the job's standard files with the session.
type streams struct {
	session  *guest.Session
	terminal *os.File // our end of the pseudo-terminal, if there is one
	child    []*os.File
	ours     map[byte]*os.File
	copies   sync.WaitGroup
}

func startStreams(s *guest.Session, terminal *guest.Size) (*streams, error) {
	t := &streams{session: s, ours: map[byte]*os.File{}}
	if terminal != nil {
		return t, t.openTerminal(*terminal)
	}
	for _, id := range []byte{guest.StreamStdin, guest.StreamStdout, guest.StreamStderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if id == guest.StreamStdin {
			t.child, t.ours[id] = append(t.child, r), w
		} else {
			t.child, t.ours[id] = append(t.child, w), r
		}
	}
	go t.feed(t.ours[guest.StreamStdin])
	t.collect(guest.StreamStdout, t.ours[guest.StreamStdout])
	t.collect(guest.StreamStderr, t.ours[guest.StreamStderr])
	return t, nil
}

// feed ends by itself when the job does not read any more.
func (t *streams) feed(to *os.File) {
	io.Copy(to, t.session.Stream(guest.StreamStdin))
	if to != t.terminal {
		to.Close()
	}
}

func (t *streams) collect(id byte, from *os.File) {
	t.copies.Go(func() {
		io.Copy(t.session.Stream(id), from)
		t.session.Stream(id).CloseWrite()
	})
}

// drain returns when the job's output is in the session. Processes that outlive the job and cannot be killed do not hold it.
func (t *streams) drain() {
	done := make(chan struct{})
	go func() { t.copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTime):
		for id, f := range t.ours {
			if id != guest.StreamStdin {
				f.SetReadDeadline(time.Now())
			}
		}
		<-done
	}
}

// drainTime is for processes in a full image that left the job's cgroup; there are none in the micro image.
const drainTime = 5 * time.Second

// breakOutput lets the job's next write fail, as when the reader of a pipe has gone.
func (t *streams) breakOutput(id byte) {
	if f := t.ours[id]; f != nil && id != guest.StreamStdin {
		f.Close()
	}
}

func (t *streams) childFDs() []uintptr {
	fds := make([]uintptr, 3)
	for i := range fds {
		fds[i] = t.child[min(i, len(t.child)-1)].Fd()
	}
	return fds
}

func (t *streams) closeChildEnds() {
	for _, f := range t.child {
		f.Close()
	}
}

func (t *streams) openTerminal(size guest.Size) error {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	unlock := 0
	raw, err := ours.SyscallConn()
	if err != nil {
		return err
	}
	var number int
	raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, unlock); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil {
		return err
	}
	child, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	t.terminal, t.child = ours, []*os.File{child}
	t.resize(size)
	t.session.Stream(guest.StreamStderr).CloseWrite()
	go t.feed(ours)
	t.collect(guest.StreamStdout, ours)
	return nil
}

func (t *streams) resize(size guest.Size) {
	if t.terminal == nil {
		return
	}
	if raw, err := t.terminal.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
		})
	}
}
