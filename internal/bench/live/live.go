// Package live has the members of a benchmark: VMs, each with a worker that waits for orders, and beside each a worker
// on the host, on the CPUs of that VM. While one side works the other one waits for its input.
package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/bench/work"
	"github.com/grange-project/grange/internal/execjob"
	"github.com/grange-project/grange/internal/farm"
)

// Config is how members are started.
type Config struct {
	Launcher execjob.Launcher
	Options  []string // of `grange exec`, beside what a size says
	Emulated func()   // is called where VMs run without KVM
}

// patience is how much longer than it should a measurement may take: a host that swaps is not waited for all day.
const patience = 5 * time.Minute

// member does as it is told.
type member struct {
	in    io.Writer
	out   *bufio.Reader
	ended func() string // says how it ended, once it has
}

// team is all members of both sides.
type team struct {
	threads   int // of each member
	jobs      []*execjob.Job
	processes []*exec.Cmd
	vms, host []member
	cancel    context.CancelFunc
	closers   []io.Closer
}

// Field fills the host with VMs of a size.
func (c Config) Field(ctx context.Context, s bench.Size) (bench.Team, error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &team{threads: s.CPUs, cancel: cancel}
	err := c.start(ctx, t, s)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// HostField has only the workers on the host: each on as many of the CPUs as a VM of the size would have.
func HostField(ctx context.Context, s bench.Size, cpus []int, guest string) (bench.Team, error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &team{threads: s.CPUs, cancel: cancel}
	for i := range s.VMs {
		own := farm.NewCPUSet(cpus[i*s.CPUs : (i+1)*s.CPUs]...)
		if err := t.beside(ctx, own.String(), guest); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

func (c Config) start(ctx context.Context, t *team, s bench.Size) error {
	shape := execjob.Shape{CPUs: s.CPUs, Memory: s.Memory}
	for range s.VMs {
		j, err := c.Launcher.Launch(ctx, shape, c.Options, c.Launcher.Guest(work.Name)...)
		if err != nil {
			return err
		}
		t.jobs = append(t.jobs, j)
		t.vms = append(t.vms, member{j.In, j.Out, func() string { return howEnded(j.Finish()) }})
	}
	for i, j := range t.jobs {
		if line, err := j.Out.ReadString('\n'); err != nil || line != work.Up+"\n" || j.VM() == nil {
			t.jobs = append(t.jobs[:i], t.jobs[i+1:]...)
			return notStarted(i, s, j.Finish())
		}
	}
	for _, j := range t.jobs {
		vm := j.VM()
		if vm.Applied.Accelerator != "kvm" {
			c.Emulated()
		}
		if err := t.beside(ctx, strings.Join(vm.Plan.VCPUs, ","), c.Launcher.GuestFile); err != nil {
			return err
		}
	}
	return nil
}

// howEnded says what became of a VM that worked.
func howEnded(end execjob.End) string {
	if len(end.Details) > 0 {
		return "a VM has gone: " + strings.Join(end.Details, "; ")
	}
	return fmt.Sprintf("a VM's job ended with status %d", end.Status)
}

func notStarted(n int, s bench.Size, end execjob.End) error {
	e := &farm.Error{Kind: farm.Conflict, Code: bench.CodeBench,
		Message: fmt.Sprintf("VM %d of %d was not started: %s", n+1, s.VMs, strings.Join(end.Details, "; ")),
		Hint:    "choose fewer VMs, CPUs or --memory; `grange host show` says what is free; drain a host that is in use"}
	if !end.Refused && len(end.Details) == 0 {
		e.Message = fmt.Sprintf("VM %d of %d ended with status %d before it did anything", n+1, s.VMs, end.Status)
		e.Hint = "`grange exec --verbose -- true` shows whether jobs run here"
	}
	return e
}

// beside starts a worker on the host, on the CPUs of a VM.
func (t *team) beside(ctx context.Context, cpus, guest string) error {
	cmd := execjob.Program(ctx, "/usr/bin/taskset", "-c", cpus, guest, work.Name)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.processes, t.closers = append(t.processes, cmd), append(t.closers, in)
	m := member{in, bufio.NewReader(out), func() string {
		cmd.Wait()
		return fmt.Sprintf("the worker on CPUs %s has gone: %v", cpus, cmd.ProcessState)
	}}
	if line, err := m.out.ReadString('\n'); err != nil || line != work.Up+"\n" {
		return fmt.Errorf("the worker on CPUs %s does not come up: %q, %w", cpus, line, err)
	}
	t.host = append(t.host, m)
	return nil
}

func (t *team) Host(ctx context.Context, workload string, d time.Duration) (float64, error) {
	return t.all(ctx, t.host, workload, d)
}

func (t *team) VMs(ctx context.Context, workload string, d time.Duration) (float64, error) {
	return t.all(ctx, t.vms, workload, d)
}

// all has members work at once, and adds up what they did.
func (t *team) all(ctx context.Context, members []member, workload string, d time.Duration) (sum float64, err error) {
	line, err := json.Marshal(work.Order{Workload: workload, Threads: t.threads, For: d})
	if err != nil {
		return 0, err
	}
	rates, errs := make([]float64, len(members)), make([]error, len(members))
	var done sync.WaitGroup
	for i, m := range members {
		done.Go(func() { rates[i], errs[i] = m.do(append(line, '\n')) })
	}
	over := make(chan struct{})
	go func() { done.Wait(); close(over) }()
	late := time.NewTimer(d + patience)
	defer late.Stop()
	if strings.HasPrefix(workload, work.Program) {
		late.Stop() // it takes as long as it takes
	}
	select {
	case <-over:
	case <-ctx.Done():
		t.cancel() // which ends the members, and so what they are waited for
		<-over
		return 0, context.Cause(ctx)
	case <-late.C:
		t.cancel()
		<-over
		return 0, fmt.Errorf("it took %v more than %v: the host is too busy, or swaps", patience, d)
	}
	for _, r := range rates {
		sum += r
	}
	return sum, errors.Join(errs...)
}

func (m member) do(order []byte) (float64, error) {
	var line []byte
	_, err := m.in.Write(order)
	if err == nil {
		line, err = m.out.ReadBytes('\n')
	}
	if err != nil {
		return 0, &farm.Error{Kind: farm.Unavailable, Code: bench.CodeBench, Message: m.ended(),
			Hint: "see `journalctl -u grange-agent` and the kernel's log, and measure again"}
	}
	var a work.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, &farm.Error{Kind: farm.Conflict, Code: bench.CodeBench, Message: farm.Printable(a.Error),
			Hint: "try it by itself, on the host and with `grange exec`"}
	}
	return a.Rate, nil
}

// Close ends all members. They end with their input.
func (t *team) Close() error {
	for _, in := range t.closers {
		in.Close()
	}
	for _, cmd := range t.processes {
		cmd.Wait()
	}
	for _, j := range t.jobs {
		j.In.Close()
	}
	for _, j := range t.jobs {
		j.Finish()
	}
	t.cancel()
	return nil
}
