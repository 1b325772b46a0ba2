package vmimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// command is one program of the host. Its environment is fixed; no shell is involved.
type command struct {
	path    string // absolute
	args    []string
	dir     string
	timeout time.Duration
	hint    string // for the user when the program is missing
}

// run returns what the program prints. Its last words of complaint are part of the error.
func (c command) run(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	err := c.stream(ctx, func(r io.Reader) error { _, err := out.ReadFrom(r); return err })
	return out.Bytes(), err
}

// stream hands what the program prints to read, which must read to the end.
func (c command) stream(ctx context.Context, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	cmd.WaitDelay = 5 * time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeImageBuild, Message: c.path + " cannot be run", Hint: c.hint, Err: err}
	}
	readErr := read(out)
	io.Copy(io.Discard, out) // so that the program ends even when read gave up
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("%s %s: %w: %s", c.path, c.args[0], err, lastLines(complaint.String(), 4))
	}
	return readErr
}

// lastLines keeps error texts short.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// ended tells whether err is the end of the caller's context, which is nobody's fault.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
