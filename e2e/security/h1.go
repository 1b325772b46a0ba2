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

// fakeQEMU has account number by start a process that looks like the QEMU of account 1's VM, with a higher number, and restarts the agent,
// which has to find out anew which process the VM is. With the job's end the real QEMU ends, and the fake is left alone.
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
	job := owner.command(ctx, filepath.Join(s.programs, "grange"), "exec", "--memory", "256M", "--", "sleep", "600")
	job.Env = append(job.Env, "GRANGE_SOCKET="+l.Socket)
	job.Stderr = os.Stderr
	if err := job.Start(); err != nil {
		return err
	}
	defer job.Wait()
	defer job.Process.Kill()
	vm, err := runningOf(ctx, l, owner.uid)
	if err != nil {
		return err
	}
	real, err := qemuOf(l, vm.Name)
	if err != nil {
		return err
	}
	defer l.Virsh(context.WithoutCancel(ctx), "destroy", vm.Name)
	fake, err := faker.pretend(ctx, vm.Name, vm.ID, nil)
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
	return endsAlone(ctx, job, real, fake)
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
			return breach("a process of an ordinary account was ended in place of QEMU; QEMU itself has ended: %v", gone)
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
