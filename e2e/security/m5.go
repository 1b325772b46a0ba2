package main

import (
	"context"
	"fmt"
	"strings"
)

// foreignVM: a host that was taken over reports the VM of another host, to be sent what that is made of.
func foreignVM(ctx context.Context, s *site) error {
	a, vm, err := s.withSecret(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	token, err := a.grange(ctx, "host", "token", "create", "--cell", "general")
	if err != nil {
		return err
	}
	id, refused, err := a.enrol(ctx, token, "hostile", "hostile", false)
	if err != nil || refused != "" {
		return fmt.Errorf("the hostile host does not join: %s %w", refused, err)
	}
	got, err := a.learns(ctx, id, vm)
	if err != nil {
		return err
	}
	got = strings.ReplaceAll(got, vm, "") // it knew that ID, whose digits may well have "db" in them
	for _, secret := range []string{secretWord, "people", "db", "micro"} {
		if strings.Contains(got, secret) {
			return breach("it learns %q: %s", secret, got)
		}
	}
	return nil
}
