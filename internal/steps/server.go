package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// Job is the job whose steps are started, as the agent tells: nothing of it comes from the VM, or from the job's
// environment.
type Job struct {
	ID     string
	Conf   string   // of slurm.conf; "": where this host's srun looks
	Wishes []string // options that keep the tasks in this job's VM, as --vm=IMAGE
	Places map[string]Place
	Dir    string // the name of our own working directory, as the job knows it
}

// Place is a directory of the host that a VM sees. A guest that sees the one above as well can put a symbolic link in
// its place: so a step's task looks where it really is.
type Place struct {
	Path     string `json:"path"` // without symbolic links
	ReadOnly bool   `json:"ro,omitempty"`
	SetID    bool   `json:"suid,omitempty"`
	Devices  bool   `json:"dev,omitempty"`
}

// find gives the host's srun. Tests have their own.
type find func() (string, error)

// Server answers a VM's calls of srun.
type Server struct {
	Job  Job
	find find
}

// NewServer makes one.
func NewServer(j Job, find func() (string, error)) *Server { return &Server{j, find} }

// Serve answers on all slots of the session until ctx ends. What runs then is ended.
func (s *Server) Serve(ctx context.Context, session *guest.Session) {
	var slots sync.WaitGroup
	for slot := range guest.MaxSteps {
		first := byte(guest.StreamStep + slot*guest.StepStreams)
		slots.Go(func() { s.serveSlot(ctx, session, first) })
	}
	slots.Wait()
}

// serveSlot runs one step after the other. A VM that does not keep to the order of things harms itself alone.
func (s *Server) serveSlot(ctx context.Context, session *guest.Session, first byte) {
	messages := session.Stream(first)
	var signals chan syscall.Signal
	var running, input sync.WaitGroup
	defer running.Wait()
	guest.Lines(messages, guest.MaxStepLine, func(r guest.StepRequest) {
		switch {
		case r.Open != nil:
			running.Wait() // of the step before it
			input.Wait()
			signals = make(chan syscall.Signal, 16)
			hear := signals
			running.Go(func() {
				guest.WriteLine(messages, s.run(ctx, *r.Open, hear, &input, session, first))
			})
		case passed[syscall.Signal(r.Signal)] && signals != nil:
			select {
			case signals <- syscall.Signal(r.Signal):
			default:
			}
		}
	})
}

// passed are the signals that srun's own users send it.
var passed = map[syscall.Signal]bool{syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGHUP: true,
	syscall.SIGQUIT: true, syscall.SIGUSR1: true, syscall.SIGUSR2: true, syscall.SIGCONT: true, syscall.SIGALRM: true}

// run runs one step, and carries its outputs to their ends; its input ends when the guest has heard how the step ended.
func (s *Server) run(ctx context.Context, step guest.Step, signals <-chan syscall.Signal, input *sync.WaitGroup,
	session *guest.Session, first byte) guest.StepAnswer {
	stdin, stdout, stderr := session.Stream(first+1), session.Stream(first+2), session.Stream(first+3)
	cmd, err := s.command(ctx, step)
	var in io.WriteCloser
	var out, errs io.ReadCloser
	if err == nil {
		in, out, errs, err = start(cmd)
	}
	if err != nil {
		guest.WriteChunks(stdout, strings.NewReader(""))
		guest.WriteChunks(stderr, strings.NewReader(""))
		input.Go(func() { guest.ReadChunks(io.Discard, stdin) })
		return guest.StepAnswer{Status: 1, Refused: err.Error()}
	}
	var outputs sync.WaitGroup
	outputs.Go(func() { guest.WriteChunks(stdout, out) })
	outputs.Go(func() { guest.WriteChunks(stderr, errs) })
	input.Go(func() {
		guest.ReadChunks(in, stdin)
		in.Close()
	})
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				cmd.Process.Signal(sig)
			case <-ended:
				return
			}
		}
	}()
	outputs.Wait()
	err = cmd.Wait()
	close(ended)
	answer := guest.StepAnswer{Status: cmd.ProcessState.ExitCode()}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		answer.Status = 128 + int(w.Signal())
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		answer = guest.StepAnswer{Status: 1, Refused: err.Error()}
	}
	return answer
}

// command is the one command line that is ever run here.
func (s *Server) command(ctx context.Context, step guest.Step) (*exec.Cmd, error) {
	step.Decode()
	allowed, command, err := split(step.Argv)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		return nil, errors.New("no command")
	}
	path, err := s.find()
	if err != nil {
		return nil, fmt.Errorf("this host has no srun: %w", err)
	}
	packed, err := Task{guest.Step{Argv: command, Env: step.Env, Dir: step.Dir, Process: step.Process},
		s.Job.Places}.Pack()
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "SLURM_JOB_ID=" + s.Job.ID,
		"SLURM_JOBID=" + s.Job.ID}
	if s.Job.Dir != "" {
		env = append(env, "PWD="+s.Job.Dir)
	}
	if s.Job.Conf != "" {
		env = append(env, "SLURM_CONF="+s.Job.Conf)
	}
	args := append(append(append([]string{}, s.Job.Wishes...), allowed...), "--", Placeholder)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(env, defaults(step.Env)...), packed...)
	// srun starts where we are, and Slurm has its tasks start there too. Where the step is to run in the VM is no more
	// to the host than its command is: a directory of that name here would be one that the guest chose.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are ours to pass on
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTimeout
	return cmd, nil
}

// endTimeout is how long an srun whose job is over may take to say so to Slurm.
const endTimeout = 5 * time.Second

func start(cmd *exec.Cmd) (in io.WriteCloser, out, errs io.ReadCloser, err error) {
	if in, err = cmd.StdinPipe(); err != nil {
		return
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return
	}
	if errs, err = cmd.StderrPipe(); err != nil {
		return
	}
	err = cmd.Start()
	return
}
