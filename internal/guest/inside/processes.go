package inside

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processes are those of one job: a control group of its own, which no user can leave. The zero value is of a job that
// has the VM to itself, in an image where we are process 1: all processes are its own.
type processes struct {
	dir string // of the control group; "" without one
}

// unified is where a hierarchy of version 2 is, or will be mounted for us: one without controllers goes beside those of
// version 1.
var unified = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/run/grange-cgroup"}

// newProcesses makes the control group of a job. Where there can be none, the job's session stands for it.
func newProcesses(job string) *processes {
	for i, root := range unified {
		if i == len(unified)-1 && os.MkdirAll(root, 0o755) == nil {
			unix.Mount("cgroup2", root, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		dir := filepath.Join(root, "grange", job)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			logf("control group of job %s: %v", job, err)
			return &processes{}
		}
		return &processes{dir}
	}
	return &processes{}
}

// open gives the control group to be started in; nil without one.
func (p *processes) open() *os.File {
	if p == nil || p.dir == "" {
		return nil
	}
	dir, err := os.Open(p.dir)
	if err != nil {
		return nil
	}
	return dir
}

// kill ends every process of the job whose command was pid; 0 when it never started. It returns when none is left.
func (p *processes) kill(pid int) {
	if p.dir == "" {
		killSession(pid)
		return
	}
	const timeout = 5 * time.Second
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		left, err := os.ReadFile(filepath.Join(p.dir, "cgroup.procs"))
		if err != nil || len(bytes.TrimSpace(left)) == 0 {
			break
		}
		if os.WriteFile(filepath.Join(p.dir, "cgroup.kill"), []byte("1"), 0) == nil {
			continue
		}
		for line := range strings.FieldsSeq(string(left)) { // a kernel before 5.14
			if n, err := strconv.Atoi(line); err == nil {
				unix.Kill(n, unix.SIGKILL)
			}
		}
	}
	if pid > 0 {
		unix.Kill(-pid, unix.SIGKILL) // where it could not be started in the group
	}
	os.Remove(p.dir)
}

// killSession ends the processes of a session. Those that made one of their own are not found.
func killSession(leader int) {
	if leader <= 0 {
		return
	}
	unix.Kill(-leader, unix.SIGKILL)
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		const session = 3 // counted behind the name
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > session && fields[session] == fmt.Sprint(leader) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}
