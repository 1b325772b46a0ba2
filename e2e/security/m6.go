package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// escapedName is the name of a job's program: it clears the screen, sets its title, and makes a line of its own.
const escapedName = "x\x1b[2J\x1b]0;owned\x07\ngrange-00000000  running"

// hostileNames starts a job of an ordinary account, and lists the host's VMs as root does.
func hostileNames(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	a, err := s.account(6)
	if err != nil {
		return err
	}
	job := a.command(ctx, filepath.Join(s.programs, "grange"), "--socket", l.Socket, "exec", "--",
		"/tmp/"+escapedName, "600")
	said, err := os.Create(s.path("m6.log"))
	if err != nil {
		return err
	}
	defer said.Close()
	job.Stdout, job.Stderr = said, said
	if err := job.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	defer func() { job.Process.Kill(); <-ended }()
	for {
		list, err := l.Grange(ctx, "vm", "list").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, list)
		}
		if strings.Contains(string(list), "owned") {
			return printsRaw(string(list))
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(said.Name())
			return fmt.Errorf("the job ended before it was listed: %w: %s", err, text)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func printsRaw(list string) error {
	raw := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if strings.ContainsFunc(list, raw) || strings.Contains(list, "\ngrange-00000000") {
		return breach("root's list of VMs: %q", list)
	}
	return nil
}
