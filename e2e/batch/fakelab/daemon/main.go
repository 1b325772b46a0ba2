// Command daemon is what starts jobs in package fakelab: pbs_mom, sbatchd or res, as its own file is called. It makes
// processes the way that daemon does, sends them signals the way it does, and tells what came of them. It has no queue
// and no opinion.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Start is a job to be started.
type Start struct {
	Job     string   `json:"job"`
	UID     int      `json:"uid"`
	Program string   `json:"program"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	Stdin   string   `json:"stdin"` // a file
	Line    string   `json:"line"`  // or this line from a pipe
	Stdout  string   `json:"stdout"`
	Stderr  string   `json:"stderr"`
	Umask   int      `json:"umask"`
	Cgroups []string `json:"cgroups"` // directories to be entered
	Res     string   `json:"res"`     // sbatchd: the path of res, and the job's file
	File    string   `json:"file"`
	Hook    []string `json:"hook"` // pbs_mom: what runs the hook, with a description of the event on its input
	Event   string   `json:"event"`
}

// order is one line on our input; event one on our output.
type order struct {
	Start  *Start `json:"start,omitempty"`
	PID    int    `json:"pid,omitempty"` // of the job, as we told it
	Signal int    `json:"signal,omitempty"`
}

type event struct {
	Job    string `json:"job"`
	PID    int    `json:"pid,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Status int    `json:"status"` // as wait has it
	Error  string `json:"error,omitempty"`
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "--become":
		err = become(os.Args[2])
	case filepath.Base(os.Args[0]) == "res":
		err = res()
	default:
		err = serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(254) // as pbs_mom ends a job's process whose program cannot be run
	}
}

// serve starts jobs as orders come, until they end.
func serve() error {
	var mu sync.Mutex
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		json.NewEncoder(os.Stdout).Encode(e)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Start != nil {
			start(*o.Start, tell)
		} else {
			signalSession(sessionOf(o.PID), syscall.Signal(o.Signal))
		}
	}
	return lines.Err()
}

// start makes a process of ours that will be the job's, and reports it and its end.
func start(s Start, tell func(event)) {
	text, _ := json.Marshal(s)
	file, err := os.CreateTemp(filepath.Dir(os.Args[0]), "start-")
	if err == nil {
		_, err = file.Write(text)
		file.Close()
	}
	if err != nil {
		tell(event{Job: s.Job, Ended: true, Error: err.Error()})
		return
	}
	cmd := exec.Command("/proc/self/exe", "--become", file.Name())
	cmd.Args[0] = os.Args[0]
	if s.Res != "" {
		cmd = exec.Command(s.Res, "-d", "/etc/lsf/conf", "-m", "node", s.File)
		cmd.Env = []string{"FAKE_START=" + file.Name()}
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tell(event{Job: s.Job, Ended: true, Error: err.Error()})
		return
	}
	tell(event{Job: s.Job, PID: cmd.Process.Pid})
	go func() {
		cmd.Wait()
		os.Remove(file.Name())
		tell(event{Job: s.Job, Ended: true, Status: int(cmd.ProcessState.Sys().(syscall.WaitStatus))})
	}()
}

// res starts the job's shell and ends as it does. It stays root, and is in no session of the job's.
func res() error {
	cmd := exec.Command("/proc/self/exe", "--become", os.Getenv("FAKE_START"))
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
	return nil
}

// become turns this process, root's, into the job: control groups, session, hook, files, user, program, in mom's order.
func become(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s Start
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if _, err := syscall.Setsid(); err != nil {
		return err
	}
	for _, dir := range s.Cgroups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
	}
	if len(s.Hook) > 0 {
		if err := s.runHook(); err != nil {
			return err
		}
	}
	syscall.Umask(s.Umask)
	if err := syscall.Setgroups([]int{s.UID}); err != nil {
		return err
	}
	if err := syscall.Setgid(s.UID); err != nil {
		return err
	}
	if err := syscall.Setuid(s.UID); err != nil {
		return err
	}
	for fd, path := range []string{s.Stdin, s.Stdout, s.Stderr} {
		f, err := s.open(fd, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := syscall.Dup3(f, fd, 0); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Dir); err != nil {
		return err
	}
	err = syscall.Exec(s.Program, s.Argv, s.Env)
	return fmt.Errorf("exec of %s failed with error: %w", s.Program, err)
}

// open opens one of the job's standard files. A line, not a file, comes from a pipe that has its end behind it: so mom
// names the script.
func (s *Start) open(fd int, path string) (int, error) {
	if fd > 0 {
		return syscall.Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	}
	if s.Line == "" {
		return syscall.Open(path, os.O_RDONLY, 0)
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer syscall.Close(pipe[1])
	_, err := syscall.Write(pipe[1], []byte(s.Line)) // less than the pipe holds
	return pipe[0], err
}

// runHook runs the hook as mom does: a child of this process, as root. It answers with the event as it is afterwards.
func (s *Start) runHook() error {
	cmd := exec.Command(s.Hook[0], s.Hook[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdin, cmd.Stderr = strings.NewReader(s.Event), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	var answer struct {
		Accept   bool              `json:"accept"`
		Message  string            `json:"message"`
		Progname string            `json:"progname"`
		Argv     []string          `json:"argv"`
		Env      map[string]string `json:"env"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	if !answer.Accept {
		fmt.Fprintln(os.Stderr, answer.Message)
		os.Exit(rejected)
	}
	s.Program, s.Argv = answer.Progname, answer.Argv
	return nil
}

// rejected is our own way to tell a job that a hook rejected: mom's JOB_EXEC_FAILHOOK_DELETE is no exit status.
const rejected = 253

// signalSession sends a signal to every process of a session, as pbs_mom does (src/resmom/linux/mom_mach.c,
// kill_session).
func signalSession(session int, s syscall.Signal) {
	for range 3 { // those that fork meanwhile
		for _, pid := range members(session) {
			syscall.Kill(pid, s)
		}
		if s != syscall.SIGKILL && s != syscall.SIGSTOP {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// sessionOf is that of the job: of the process itself, or of res's child.
func sessionOf(pid int) int {
	for range 100 {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil ||
			strings.TrimSpace(string(name)) != "res" {
			return pid
		}
		const parent = 1
		if children := processes(parent, pid); len(children) > 0 {
			return children[0] // it leads the session
		}
		time.Sleep(5 * time.Millisecond) // res has not started it yet
	}
	return pid
}

func members(session int) []int { return processes(3, session) }

// processes are those with this number in that field of stat, counted behind the name.
func processes(field, number int) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); len(f) > field &&
			f[field] == strconv.Itoa(number) {
			pids = append(pids, pid)
		}
	}
	return pids
}
