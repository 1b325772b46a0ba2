package main

import (
	"context"
	"errors"
	"os"
	"strings"
)

// foreignToken: the administrator of another cell makes a token for a host's name, and takes that host over.
func foreignToken(ctx context.Context, s *site) error {
	a, vm, err := s.withSecret(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	if err := os.WriteFile(a.path("farm.toml"), []byte(otherCell), 0o600); err != nil {
		return err
	}
	if _, err := a.grange(ctx, "apply", "-f", a.path("farm.toml")); err != nil {
		return err
	}
	token, err := a.as(ctx, "cyd", "host", "token", "create", "--cell", "other", "--name", victim)
	if err != nil && !strings.Contains(err.Error(), "no-role") {
		return err
	}
	if err == nil {
		if err := a.takesOver(ctx, token, "elsewhere", vm); err != nil {
			return err
		}
	}
	token, err = a.as(ctx, "cyd", "host", "token", "create", "--cell", "other", "--count", "50")
	if err != nil {
		return err
	}
	return a.takesOver(ctx, token, victim, vm)
}

// livingHost: who reads a token for many hosts and the machine-id of a host that runs takes it over.
func livingHost(ctx context.Context, s *site) error {
	a, vm, err := s.withSecret(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	token, err := a.grange(ctx, "host", "token", "create", "--cell", "general", "--count", "50")
	if err != nil {
		return err
	}
	return a.takesOver(ctx, token, victim, vm)
}

// takesOver tries to be the victim.
func (a *standalone) takesOver(ctx context.Context, token, machine, vm string) error {
	id, refused, err := a.enrol(ctx, token, victim, machine, true)
	if err != nil {
		return err
	}
	if refused != "" {
		if !strings.Contains(refused, "join-refused") && !strings.Contains(refused, "host-answers") {
			return errors.New("refused for another reason: " + refused)
		}
		return nil
	}
	got, err := a.learns(ctx, id, vm)
	return breach("a stranger is host %s now, and learns of its VM: %s %v", victim, got, err)
}
