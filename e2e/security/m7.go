package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lab"
)

// cloudVM has a VM of the shared farm, whose user data is a script, until done is called; it returns its host and its
// machine there.
func (s *site) cloudVM(ctx context.Context, name, script string) (h *lab.Lab, m lab.Machine, done func(), err error) {
	f, err := s.farm(ctx)
	if err != nil {
		return nil, m, nil, err
	}
	file := s.path(name + ".sh")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o644); err != nil {
		return nil, m, nil, err
	}
	if _, err := f.Run(ctx, "vm", "create", "--project", "people", "--name", name, "--image", farmlab.Image, "--shape",
		"tiny", "--user-data", file, "--wait"); err != nil {
		return nil, m, nil, err
	}
	done = func() { f.Run(context.WithoutCancel(ctx), "vm", "delete", "people/"+name, "--wait") }
	for _, h := range f.Hosts {
		if all := h.Machines(); len(all) == 1 {
			return h, all[0], done, nil
		}
	}
	done()
	return nil, m, nil, fmt.Errorf("VM people/%s is on none of the farm's hosts", name)
}

// readConsoles: when a cloud VM ends, other accounts of its host see that it did, and not what it wrote to its console;
// root sees both.
func readConsoles(ctx context.Context, s *site) error {
	const secret = "the-password-is-hunter2"
	h, m, done, err := s.cloudVM(ctx, "m7", "echo "+secret)
	if err != nil {
		return err
	}
	defer done()
	a, err := s.account(7)
	if err != nil {
		return err
	}
	err = farmlab.Await(ctx, time.Minute, "the VM's console", func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(h.Dir, "state/vm", m.Name, "console.log"))
		return strings.Contains(string(text), secret), err
	})
	if err != nil {
		return err
	}
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		return err
	}
	err = farmlab.Await(ctx, time.Minute, "the end of the VM's console in what root sees", func() (bool, error) {
		vms, err := h.Client.VMs(ctx)
		return err == nil && len(vms) == 1 && strings.Contains(vms[0].Cloud.Reason, secret), err
	})
	if err != nil {
		return err
	}
	for _, path := range []string{"/v1/vms", "/v1/vms/" + m.Name, "/v1/host"} {
		out, err := a.command(ctx, "curl", "-sS", "--unix-socket", h.Socket, "http://host"+path).CombinedOutput()
		switch {
		case err != nil:
			return fmt.Errorf("curl: %w: %s", err, out)
		case strings.Contains(string(out), secret):
			return breach("an ordinary account reads the console of another's VM in %s", path)
		case path != "/v1/host" && !strings.Contains(string(out), "vm-ended"):
			return fmt.Errorf("an ordinary account does not see that the VM ended: %s", out)
		}
	}
	return nil
}
