package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// fewAttempts has a VM that does not come up fail soon.
const fewAttempts = "attempts = 1\nboot_timeout = \"1m\"\n"

// impossibleDisks asks for disks that no host has, until something backs off.
func impossibleDisks(ctx context.Context, s *site) error {
	l, err := s.start(ctx, lab.Options{Config: fewAttempts})
	if err != nil {
		return err
	}
	return s.othersStart(ctx, l, []string{"--scratch", "16T"}, []string{"--scratch", "16T"},
		[]string{"--scratch", "16T"})
}

// silentGuests starts VMs of two images with too little memory for either.
func silentGuests(ctx context.Context, s *site) error {
	l, err := s.start(ctx, lab.Options{Config: fewAttempts})
	if err != nil {
		return err
	}
	if _, err := l.Client.MakeImage(ctx, api.ImageRequest{Name: "second"}, func(string) {}); err != nil {
		return err
	}
	least := []string{"--memory", "64M"}
	return s.othersStart(ctx, l, least, append(least, "--image", "second"), least)
}

// othersStart has one account make requests that fail, and another one start a VM at once.
func (s *site) othersStart(ctx context.Context, l *lab.Lab, requests ...[]string) error {
	attacker, err := s.account(1)
	if err != nil {
		return err
	}
	victim, err := s.account(2)
	if err != nil {
		return err
	}
	for _, flags := range requests {
		if out, err := attacker.exec(ctx, l, append(flags, "--no-wait", "--", "true")...).CombinedOutput(); err == nil {
			return fmt.Errorf("a VM with %v runs: %s", flags, out)
		}
	}
	if out, err := victim.exec(ctx, l, "--", "true").CombinedOutput(); err != nil {
		return breach("another account gets no VM: %v: %s", err, out)
	}
	return nil
}

// exec is `grange exec` of the account.
func (a *account) exec(ctx context.Context, l *lab.Lab, args ...string) *exec.Cmd {
	cmd := a.command(ctx, l.Binary, append([]string{"exec"}, args...)...)
	cmd.Env = append(cmd.Env, "GRANGE_SOCKET="+l.Socket)
	return cmd
}
