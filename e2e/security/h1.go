package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

func fakeOfOwnVM(ctx context.Context, s *site) error    { return fakeQEMU(ctx, s, 1) }
func fakeOfOthersVM(ctx context.Context, s *site) error { return fakeQEMU(ctx, s, 2) }

// fakeQEMU has account number by start a process that looks like the QEMU of account 1's VM, with a higher number, and
// restarts the agent, which has to find out anew which process the VM is. With the job's end the real QEMU ends, and
// the fake is left alone.
func fakeQEMU(ctx context.Context, s *site, by int) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	owner, err := s.account(1)
	if err != nil {
		return err
	}
	faker, err := s.account(by)
	if err != nil {
		return err
	}
	job, err := s.sleep(ctx, l, owner, "--memory", "256M")
	if err != nil {
		return err
	}
	defer job.end()
	defer l.Virsh(context.WithoutCancel(ctx), "destroy", job.vm.Name)
	fake, err := faker.pretend(ctx, job.vm.Name, job.vm.ID, nil)
	if err != nil {
		return err
	}
	defer fake.end()
	l.KillAgent()
	if err := l.StartAgent(ctx); err != nil {
		return err
	}
	if _, err := runningOf(ctx, l, owner.uid); err != nil {
		return err
	}
	return endsAlone(ctx, job.Cmd, job.qemu, fake)
}

// sleeper is a job that sleeps in a VM.
type sleeper struct {
	*exec.Cmd
	vm   api.VM
	qemu int // its process
}

// sleep has an account start a job, and waits until its VM runs.
func (s *site) sleep(ctx context.Context, l *lab.Lab, a *account, options ...string) (*sleeper, error) {
	words := append(append([]string{"exec"}, options...), "--", "sleep", "600")
	j := &sleeper{Cmd: a.command(ctx, filepath.Join(s.programs, "grange"), words...)}
	j.Env = append(j.Env, "GRANGE_SOCKET="+l.Socket)
	j.Stderr = os.Stderr
	err := j.Start()
	if err != nil {
		return nil, err
	}
	if j.vm, err = runningOf(ctx, l, a.uid); err == nil {
		j.qemu, err = qemuOf(l, j.vm.Name)
	}
	if err != nil {
		j.end()
	}
	return j, err
}

func (j *sleeper) end() {
	j.Process.Kill()
	j.Wait()
}

// endsAlone ends a job, and looks whose process ends with it.
func endsAlone(ctx context.Context, job *exec.Cmd, real int, fake *pretender) error {
	if err := job.Process.Kill(); err != nil {
		return err
	}
	for limit := time.Now().Add(sweepTime); ; {
		gone := errors.Is(syscall.Kill(real, 0), syscall.ESRCH)
		switch {
		case !fake.alive():
			return breach("a process of an ordinary account was ended in place of QEMU; QEMU itself has ended: %v",
				gone)
		case gone:
			return nil
		case time.Now().After(limit):
			return breach("the job has ended, and its QEMU runs on")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runningOf waits for an account's VM.
func runningOf(ctx context.Context, l *lab.Lab, uid uint32) (api.VM, error) {
	for {
		vms, err := l.Client.VMs(ctx)
		for _, vm := range vms {
			if vm.UID == uid && vm.State == "running" {
				return vm, nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return api.VM{}, fmt.Errorf("no VM runs: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

func qemuOf(l *lab.Lab, name string) (int, error) {
	for _, m := range l.Machines() {
		if m.Name == name {
			return m.PID, nil
		}
	}
	return 0, fmt.Errorf("no QEMU of %s", name)
}
