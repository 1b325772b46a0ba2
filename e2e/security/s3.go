package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
)

// droppedGroup has an account drop the group that a rule denies VMs to.
func droppedGroup(ctx context.Context, s *site) error {
	rule := "[[policy]]\nname = \"students\"\ngroups = [\"students\"]\ndeny = \"not for students\"\n"
	return s.denied(ctx, rule, "not for students", func(h *holder, l *lab.Lab, argv []string) ([]*exec.Cmd, error) {
		file, err := h.byFile(ctx, l, 3, argv...)
		return []*exec.Cmd{h.as(ctx, l, 0, argv...), h.as(ctx, l, 1, argv...), file}, err
	})
}

// deniedByNumber has an account call under IDs that a rule does not have.
func deniedByNumber(ctx context.Context, s *site) error {
	rule := fmt.Sprintf("[[policy]]\nname = \"banned\"\nusers = [\"%d\"]\ndeny = \"not for them\"\n",
		firstAccount+holderNumber)
	return s.denied(ctx, rule, "not for them", func(h *holder, l *lab.Lab, argv []string) ([]*exec.Cmd, error) {
		file, err := h.byFile(ctx, l, 3, argv...)
		return []*exec.Cmd{h.as(ctx, l, 1, argv...), file}, err
	})
}

// denied makes the calls of an account that a rule denies VMs to. It first makes sure that the rule holds for a plain
// call.
func (s *site) denied(ctx context.Context, rule, why string,
	calls func(h *holder, l *lab.Lab, argv []string) ([]*exec.Cmd, error)) error {
	h, err := s.holder(ctx)
	if err != nil {
		return err
	}
	l, err := h.host(ctx, s, lab.Options{NoImage: true, Config: rule})
	if err != nil {
		return err
	}
	argv := []string{l.Binary, "exec", "--", "true"}
	if out, err := h.login(ctx, l, argv...).CombinedOutput(); err == nil || !strings.Contains(string(out), why) {
		return fmt.Errorf("the rule does not hold for the account itself: %v: %s", err, out)
	}
	cmds, err := calls(h, l, argv)
	if err != nil {
		return err
	}
	for n, cmd := range cmds {
		out, err := cmd.CombinedOutput()
		said := string(out)
		switch {
		case err == nil:
			return fmt.Errorf("a host without an image ran a job: %s", said)
		case strings.Contains(said, why):
		case strings.Contains(said, "image"):
			return breach("call %d of an account that a rule denies VMs to got past the rule: %s", n+1, said)
		default:
			return fmt.Errorf("call %d: %w: %s", n+1, err, said)
		}
	}
	return nil
}
