package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// execSystem is `grange exec`, each input in a VM of its own.
type execSystem struct{ lab *lab.Lab }

func openExec(ctx context.Context, _ *site) (system, error) {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return nil, err
	}
	return &execSystem{l}, nil
}

func (*execSystem) name() string { return "exec" }

func (e *execSystem) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left := e.lab.Leaks(ctx)
	if len(left) > 0 {
		return errors.Join(fmt.Errorf("left: %v", left), e.lab.Close())
	}
	return e.lab.Close()
}

func (*execSystem) adapt(in input) input { return in }

func (e *execSystem) run(ctx context.Context, c *testCase, inVM bool) (string, error) {
	argv := c.words()
	if inVM {
		argv = append([]string{e.lab.Binary, "--socket", e.lab.Socket, "exec", "-q", "--memory", "512M", "--bind",
			c.site.top, "--"}, argv...)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return c.start(c.launched(ctx, argv))
}

// start runs what was launched, with the standard files of the case, and returns what they have then.
func (c *testCase) start(cmd *exec.Cmd) (string, error) {
	var both, errs bytes.Buffer
	var err error
	if c.files == pipes {
		cmd.Stdout, cmd.Stderr = &both, &errs
	} else { // a pipe for both, or what launch opens in its place
		cmd.Stdout, cmd.Stderr = &both, &both
	}
	if c.stdin == "pipe" {
		cmd.Stdin = io.MultiReader(strings.NewReader("some input\n"))
	}
	err = cmd.Run()
	written, readErr := c.takeFiles()
	return both.String() + errs.String() + written, errors.Join(err, readErr)
}
