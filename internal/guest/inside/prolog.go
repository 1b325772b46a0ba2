package inside

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/grange-project/grange/internal/guest"
)

// runProlog runs a script of the batch system, as the job's user, in its directory and with its environment, and takes
// from its output what is to change for the job, as Slurm does for a TaskProlog. It returns the script's status: one
// that fails keeps the job from running, and its status is the job's.
func (t *task) runProlog(path string) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	errs, errsEnd, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, outEnd.Close())
	}
	defer errs.Close()
	end, err := t.launchProlog(path, []uintptr{null.Fd(), outEnd.Fd(), errsEnd.Fd()})
	err = errors.Join(err, outEnd.Close(), errsEnd.Close())
	if err != nil {
		return 0, fmt.Errorf("prolog: %w", err)
	}
	var copying sync.WaitGroup
	copying.Go(func() { io.Copy(t.session.Stream(guest.StreamStderr), errs) })
	printed := t.session.Stream(guest.StreamStdout)
	env := t.job.Env
	for reader := bufio.NewReader(out); ; {
		line, err := reader.ReadString('\n')
		var text string
		if env, text = prologLine(env, strings.TrimSuffix(line, "\n")); text != "" {
			io.WriteString(printed, text)
		}
		if err != nil {
			break
		}
	}
	copying.Wait()
	exit := exitOf(<-end)
	t.mu.Lock()
	t.pid = 0
	t.mu.Unlock()
	t.job.Env = env
	return exit.Code, nil
}

// launchProlog starts the script, unless the host has given the job up meanwhile.
func (t *task) launchProlog(path string, files []uintptr) (<-chan ending, error) {
	t.mu.Lock() // finish must see the process, or keep it from starting
	defer t.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	j := t.job
	if t.procs == nil && (j.Shared || !t.guest.init || t.guest.sshfs.any()) {
		t.procs = newProcesses(j.ID)
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: append(slices.Clone(j.Env), "SLURM_SCRIPT_CONTEXT=prolog_task"),
		Files: files, Sys: &syscall.SysProcAttr{
			Setsid: true, Credential: &syscall.Credential{Uid: j.User.UID, Gid: j.User.GID, Groups: groupIDs(j.User)}}}
	if dir := t.procs.open(); dir != nil {
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
	}
	pid, end, err := t.guest.reaper.start(func() (int, error) {
		argv := []string{TrampolineName, processText(prologProcess(j.Process)), j.Dir, path, path}
		attr.Env = trampolineEnv(attr.Env, j.Process)
		return syscall.ForkExec("/proc/self/exe", argv, attr)
	})
	t.pid = pid
	return end, err
}

// prologProcess is the state of a job's prolog, whose standard files are its own.
func prologProcess(job guest.Process) guest.Process {
	job.Null, job.Closed = 0, 0
	return job
}

// prologLine is the environment after one line of a prolog's output, and what the line has printed to the job's.
func prologLine(env []string, line string) (changed []string, printed string) {
	word, rest, _ := strings.Cut(strings.TrimLeft(line, " \t"), " ")
	rest = strings.TrimLeft(rest, " \t")
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	switch word {
	case "print":
		return env, rest + "\n"
	case "export":
		if name, value, ok := strings.Cut(rest, "="); ok && name != "" {
			name = strings.TrimSpace(name)
			return append(without(name), name+"="+value), ""
		}
	case "unset":
		return without(strings.TrimSpace(rest)), ""
	}
	return env, ""
}
