// Package execjob runs commands in VMs by `grange exec`, as anybody would, for who measures or tries a host: their
// input and output are the caller's, and what the agent says of their VMs is kept.
package execjob

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
)

// Launcher is how jobs are started.
type Launcher struct {
	Socket    string // of the agent
	Grange    string // the program
	GuestFile string // grange-guest, which VMs find by Guest
	Image     string
	Seen      func(api.VM) // is told each VM; nil: nobody is
}

// Shape is what a VM is like.
type Shape struct {
	CPUs     int
	Memory   farm.Bytes
	Cells    int        // guest NUMA cells; less than 2: none
	Whole    bool       // whole cores, with all their threads
	PageSize farm.Bytes // of huge pages; 0: ordinary ones
}

// shared is where VMs find the directory with grange-guest.
const shared = "/run/grange-guest"

// Guest is the command line of grange-guest in a VM, Bind the options that show it there.
func (l Launcher) Guest(args ...string) []string {
	return append([]string{filepath.Join(shared, filepath.Base(l.GuestFile))}, args...)
}
func (l Launcher) Bind() []string {
	return []string{"--bind", filepath.Dir(l.GuestFile) + ":" + shared + ":ro", "--workdir", "/"}
}

// Command is `grange exec` of a command in a VM of a shape. It ends with ctx: first it is asked to give the VM back.
// When this process is killed it is killed, too, and the agent ends its VM.
func (l Launcher) Command(ctx context.Context, s Shape, flags []string, argv ...string) *exec.Cmd {
	args := []string{"--socket", l.Socket, "exec", "--image", l.Image, "--cpus", fmt.Sprint(s.CPUs), "--memory",
		s.Memory.String(), "--page-size", s.PageSize.String(), "--emulator", "beside", "--numa", numa(s.Cells)}
	if s.Whole {
		args = append(args, "--thread-policy", "require")
	}
	args = append(append(append(args, flags...), "--"), argv...)
	return Program(ctx, l.Grange, args...)
}

func numa(cells int) string {
	if cells < 2 {
		return "none"
	}
	return fmt.Sprint(cells)
}

// Program is one with an absolute path and a fixed environment, in a process group of its own: an interrupt from
// the keyboard is for us to pass on.
func Program(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second // `grange exec` waits ten for the agent
	return cmd
}

// Events are what `grange exec --json` prints to its standard error. They are read when the job has ended.
type Events struct {
	VM     *api.VM
	Phases []api.Phase
	Code   string // of why there was no job

	mu    sync.Mutex
	other []string
}

// maxOther bounds what is kept of messages.
const maxOther = 20

func (e *Events) read(from io.Reader, seen func(api.VM)) {
	for lines := bufio.NewReader(from); ; {
		text, err := lines.ReadBytes('\n')
		e.take(bytes.TrimSpace(text), seen)
		if err != nil {
			return
		}
	}
}

func (e *Events) take(text []byte, seen func(api.VM)) {
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
		e.VM = v.VM
		if seen != nil {
			seen(*v.VM)
		}
	}
	if v.Phase != nil {
		e.Phases = append(e.Phases, *v.Phase)
	}
	e.Phases = append(e.Phases, v.Phases...)
	if v.Event == "result" {
		e.Code = v.Code
	}
	if v.Error != "" {
		e.other = append(e.other, v.Error)
	}
}

// Job is a `grange exec` that runs.
type Job struct {
	In  io.WriteCloser
	Out *bufio.Reader

	cmd    *exec.Cmd
	events Events
	read   chan struct{} // closed when its standard error has ended
}

// End is how a job ended.
type End struct {
	Code    string // of why it was not started; "": it was
	Refused bool   // there was no room
	Status  int
	Details []string
}

// Launch starts a command in a VM, whose input and output are the caller's.
func (l Launcher) Launch(ctx context.Context, s Shape, flags []string, argv ...string) (*Job, error) {
	flags = append(append(l.Bind(), "--json", "--no-wait"), flags...)
	j := &Job{cmd: l.Command(ctx, s, flags, argv...), read: make(chan struct{})}
	var err error
	if j.In, err = j.cmd.StdinPipe(); err != nil {
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
	j.Out = bufio.NewReader(out)
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.read)
		j.events.read(errs, l.Seen)
	}()
	return j, nil
}

// Decode reads JSON from the job's output, of 1 MiB at most.
func (j *Job) Decode(into any) error {
	return json.NewDecoder(io.LimitReader(j.Out, 1<<20)).Decode(into)
}

// Finish closes the job's input and returns how it ended.
func (j *Job) Finish() End {
	j.In.Close()
	io.Copy(io.Discard, j.Out)
	<-j.read
	err := j.cmd.Wait()
	j.events.mu.Lock()
	defer j.events.mu.Unlock()
	out := End{Status: j.cmd.ProcessState.ExitCode(), Code: j.events.Code,
		Refused: j.events.Code == string(farm.CodeNoRoom)}
	if out.Code != "" || err != nil {
		out.Details = j.events.other
	}
	return out
}

// VM is that of a job that runs; nil: it has none yet.
func (j *Job) VM() *api.VM {
	j.events.mu.Lock()
	defer j.events.mu.Unlock()
	return j.events.VM
}

// Run runs a command in a VM to its end, with wait for room or without.
func (l Launcher) Run(ctx context.Context, s Shape, flags []string, argv ...string) (End, *Events) {
	cmd := l.Command(ctx, s, append([]string{"--json"}, flags...), argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var e Events
	e.read(&errs, l.Seen)
	out := End{Code: e.Code, Refused: e.Code == string(farm.CodeNoRoom)}
	if cmd.ProcessState == nil {
		return End{Code: string(farm.CodeInternal), Details: []string{err.Error()}}, &e
	}
	if out.Status = cmd.ProcessState.ExitCode(); out.Code != "" {
		out.Details = e.other
	}
	return out, &e
}
