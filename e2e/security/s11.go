package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// namedClaims: on a host with private_vms, an account asks what holds the CPUs, in each way there is, beside another
// account's VM and a job of a batch system.
func namedClaims(ctx context.Context, s *site) error {
	if runtime.NumCPU() < 2 {
		return nil // both hold a CPU
	}
	l, err := s.start(ctx, lab.Options{Config: "private_vms = true\n"})
	if err != nil {
		return err
	}
	const key = "gridengine/4711"
	if out, err := l.Grange(ctx, "batch", "claim", "--key", key, "--cpus",
		fmt.Sprint(runtime.NumCPU()-1), "--memory", "1M").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	owner, err := s.account(1)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	job := owner.exec(ctx, l, "--cpus", "1", "--memory", "192M", "--", "sh", "-c", "echo RUNS; exec sleep 600")
	said, err := follow(job)
	if err != nil {
		return err
	}
	defer job.Wait()
	defer stop()
	if err := said.await(ctx); err != nil {
		return err
	}
	machines := l.Machines()
	if len(machines) != 1 {
		return fmt.Errorf("there are %d VMs", len(machines))
	}
	curious, err := s.account(2)
	if err != nil {
		return err
	}
	asks := map[string]*exec.Cmd{
		"host show":      curious.command(ctx, l.Binary, "--socket", l.Socket, "host", "show", "--json"),
		"image show":     curious.command(ctx, l.Binary, "--socket", l.Socket, "image", "show", "micro", "--json"),
		"vm list":        curious.command(ctx, l.Binary, "--socket", l.Socket, "vm", "list", "--json"),
		"exec --no-wait": curious.exec(ctx, l, "--cpus", "1", "--memory", "192M", "--no-wait", "--", "true"),
	}
	var named []string
	for what, cmd := range asks {
		out, err := cmd.CombinedOutput()
		if (err == nil) == (what == "exec --no-wait") {
			return fmt.Errorf("%s: %v: %s", what, err, out)
		}
		for _, secret := range []string{key, machines[0].Name} {
			if strings.Contains(string(out), secret) {
				named = append(named, fmt.Sprintf("%s names %s", what, secret))
			}
		}
	}
	if len(named) > 0 {
		return breach("another account is told what is not its own: %s", strings.Join(named, ", "))
	}
	return nil
}
