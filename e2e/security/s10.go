package main

import (
	"context"
	"fmt"
	"strings"
)

// holderOfAddress: a member of one project asks for the address that a VM of another project has.
func holderOfAddress(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := a.grange(ctx, "vm", "create", "--project", "two", "--name", "merger-db", "--image", "micro", "--shape",
		"tiny", "--network", "shared", "--address", "10.77.1.77"); err != nil {
		return err
	}
	_, err = a.as(ctx, "ann", "vm", "create", "--project", "one", "--name", "mine", "--image", "micro", "--shape",
		"tiny", "--network", "shared", "--address", "10.77.1.77")
	switch {
	case err == nil:
		return breach("two VMs have one address")
	case strings.Contains(err.Error(), "merger-db"), strings.Contains(err.Error(), "two/"):
		return breach("a member of project one is told whose address it is: %v", err)
	case !strings.Contains(err.Error(), "address-taken"):
		return fmt.Errorf("refused for another reason: %w", err)
	}
	return nil
}

// guessedNames: a caller compares the answers for names that are there, and that it may not see, with those for names
// that are not there.
func guessedNames(ctx context.Context, s *site) error {
	a, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := a.grange(ctx, "vm", "create", "--project", "two", "--name", "merger-db", "--image", "micro", "--shape",
		"tiny"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"vm", "show", "two/merger-db"}, {"vm", "stop", "two/merger-db"},
		{"host", "show", victim}, {"host", "close", victim},
	} {
		name := args[len(args)-1]
		other := name[:len(name)-1] + "x"
		known := a.answerToAnn(ctx, args...)
		guess := a.answerToAnn(ctx, append(args[:len(args)-1:len(args)-1], other)...)
		if guess = strings.ReplaceAll(guess, other, name); known != guess {
			return breach("grange %s tells what is there:\n%s\n%s", strings.Join(args, " "), known, guess)
		}
	}
	return nil
}

// answerToAnn is all that a command prints for ann, who is a member of one project.
func (a *standalone) answerToAnn(ctx context.Context, args ...string) string {
	out, err := a.as(ctx, "ann", args...)
	return fmt.Sprint(out, err)
}
