package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

func exitOf(e ending) *guest.Exit {
	exit := &guest.Exit{
		Code:   e.status.ExitStatus(),
		User:   time.Duration(e.usage.Utime.Nano()),
		System: time.Duration(e.usage.Stime.Nano()),
		MaxRSS: int64(e.usage.Maxrss), // of another type on 32 bits
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

// start starts the job's command, in the control group if there is one, with the streams as its standard files.
func (t *streams) start(path string, j *guest.Job, p *processes) (int, error) {
	defer t.closeChildEnds()
	argv := j.Argv
	attr := &syscall.ProcAttr{Dir: "/", Env: j.Env, Files: t.childFDs(), Sys: &syscall.SysProcAttr{
		Setsid:     true,
		Setctty:    t.terminal != nil,
		Credential: &syscall.Credential{Uid: j.User.UID, Gid: j.User.GID, Groups: groupIDs(j.User)},
	}}
	if dir := p.open(); dir != nil {
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
	}
	if inherited := processText(j.Process); len(j.Binds) == 0 && inherited == "" {
		attr.Dir = j.Dir // nothing to wait for: the shorter way
	} else {
		attr.Env = trampolineEnv(j.Env, j.Process)
		path, argv = "/proc/self/exe", append([]string{TrampolineName, inherited, j.Dir, path}, j.Argv...)
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil && attr.Sys.UseCgroupFD { // a kernel that cannot start a process in a group: before 5.7
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

// Trampoline becomes the job: the arguments are TrampolineName, its processText, the working directory, the program,
// and the job's own arguments. Directory and program may lie in a bound directory, whose file requests grange-guest
// answers; between fork and exec it answers nothing, so a child that looked at them there would wait for ever. It
// returns the exit status when it fails.
func Trampoline(args []string) int {
	inherited, dir, path, argv := args[1], args[2], args[3], args[4:]
	runtime.LockOSThread() // blocked signals are a thread's
	environ := jobEnv(os.Environ(), inheritSignals(inherited))
	if err := unix.Chdir(dir); err != nil {
		fmt.Fprintf(os.Stderr, "grange: working directory %s: %v\n", dir, err)
		return exitNotExecutable
	}
	inherit(inherited)
	err := syscall.Exec(path, argv, environ)
	if err == unix.ENOEXEC { // a script without "#!": shells run it themselves
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), environ)
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
