package selftest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// probes is where VMs find the directory with grange-guest.
const probes = "/run/grange-selftest"

// probeIn is the command line of a probe in a VM.
func (t *tester) probeIn(args ...string) []string {
	return append([]string{filepath.Join(probes, filepath.Base(t.GuestFile)), probe.Name}, args...)
}

// exec is `grange exec` of a command in a VM of a shape. It ends with ctx: first it is asked to give the VM back. When
// this process is killed it is killed, too, and the agent ends its VM.
func (t *tester) exec(ctx context.Context, s verdict.Shape, flags []string, argv ...string) *exec.Cmd {
	args := []string{"--socket", t.Socket, "exec", "--image", t.image, "--cpus", fmt.Sprint(s.CPUs), "--memory",
		s.Memory.String(), "--page-size", s.PageSize.String(), "--emulator", "beside", "--numa", numa(s.Cells)}
	if s.Whole {
		args = append(args, "--thread-policy", "require")
	}
	args = append(append(append(args, flags...), "--"), argv...)
	return command(ctx, t.Grange, args...)
}

func numa(cells int) string {
	if cells < 2 {
		return "none"
	}
	return fmt.Sprint(cells)
}

// command is a program with an absolute path and a fixed environment, in a process group of its own: an interrupt from
// the keyboard is for us to pass on.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second // `grange exec` waits ten for the agent
	return cmd
}

// bind shows VMs the directory of the probes.
func (t *tester) bind() []string {
	return []string{"--bind", filepath.Dir(t.GuestFile) + ":" + probes + ":ro", "--workdir", "/"}
}

// events are what `grange exec --json` prints to its standard error.
type events struct {
	mu     sync.Mutex
	vm     *api.VM
	phases []api.Phase
	code   string // of why there was no job
	other  []string
}

// maxOther bounds what is kept of messages.
const maxOther = 20

func (e *events) read(from io.Reader, seen func(api.VM)) {
	for lines := bufio.NewReader(from); ; {
		text, err := lines.ReadBytes('\n')
		e.take(bytes.TrimSpace(text), seen)
		if err != nil {
			return
		}
	}
}

func (e *events) take(text []byte, seen func(api.VM)) {
	var v struct {
		api.JobEvent
		Status int         `json:"status"`
		Error  string      `json:"error"`
		Code   string      `json:"code"`
		Phases []api.Phase `json:"phases"`
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := json.Unmarshal(text, &v); err != nil {
		if len(text) > 0 && len(e.other) < maxOther {
			e.other = append(e.other, string(text[:min(len(text), 500)]))
		}
		return
	}
	if v.VM != nil {
		e.vm = v.VM
		seen(*v.VM)
	}
	if v.Phase != nil {
		e.phases = append(e.phases, *v.Phase)
	}
	e.phases = append(e.phases, v.Phases...)
	if v.Event == "result" {
		e.code = v.Code
	}
	if v.Error != "" {
		e.other = append(e.other, v.Error)
	}
}

// job is a `grange exec` that runs.
type job struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	events events
	read   chan struct{} // closed when its standard error has ended
}

// launch starts a command in a VM, whose input and output are ours.
func (t *tester) launch(ctx context.Context, s verdict.Shape, argv ...string) (*job, error) {
	j := &job{cmd: t.exec(ctx, s, append(t.bind(), "--json", "--no-wait"), argv...), read: make(chan struct{})}
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := j.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	j.out = bufio.NewReader(out)
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.read)
		j.events.read(errs, t.ours)
	}()
	return j, nil
}

// ours notes that a VM is the test's own.
func (t *tester) ours(v api.VM) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own[v.ID], t.own[v.Name] = true, true
}

func (t *tester) isOurs(v api.VM) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own[v.ID]
}

// finish closes the job's input and returns how it ended.
func (j *job) finish() verdict.Job {
	j.in.Close()
	io.Copy(io.Discard, j.out)
	<-j.read
	err := j.cmd.Wait()
	j.events.mu.Lock()
	defer j.events.mu.Unlock()
	out := verdict.Job{Status: j.cmd.ProcessState.ExitCode(), Code: j.events.code,
		Refused: j.events.code == string(farm.CodeNoRoom)}
	if out.Code != "" || err != nil {
		out.Details = j.events.other
	}
	return out
}

// machineOf is the VM of a job that runs.
func (j *job) machineOf() *api.VM {
	j.events.mu.Lock()
	defer j.events.mu.Unlock()
	return j.events.vm
}

// run runs a command in a VM to its end, with wait for room or without.
func (t *tester) run(ctx context.Context, s verdict.Shape, flags []string, argv ...string) (verdict.Job, *events) {
	cmd := t.exec(ctx, s, append([]string{"--json"}, flags...), argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var e events
	e.read(&errs, t.ours)
	out := verdict.Job{Code: e.code, Refused: e.code == string(farm.CodeNoRoom)}
	if cmd.ProcessState == nil {
		return verdict.Job{Code: string(farm.CodeInternal), Details: []string{err.Error()}}, &e
	}
	if out.Status = cmd.ProcessState.ExitCode(); out.Code != "" {
		out.Details = e.other
	}
	return out, &e
}
