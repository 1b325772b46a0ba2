package vmimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
)

// command is one program of the host that reads what others made: it runs in a sandbox. Its environment is fixed; no
// shell is involved.
type command struct {
	path    string // absolute
	args    []string
	stdin   *os.File // nil: empty
	start   func(*exec.Cmd) (release func(), err error)
	timeout time.Duration
	hint    string // for the user when the program is missing
}

// reader starts a program that has input, which may be nil, and nothing else.
func reader(input *os.File) func(*exec.Cmd) (func(), error) {
	return func(cmd *exec.Cmd) (func(), error) { return sandbox.StartReader(cmd, input) }
}

// fetcher starts a program that downloads to dir.
func fetcher(dir *os.File) func(*exec.Cmd) (func(), error) {
	return func(cmd *exec.Cmd) (func(), error) { return sandbox.StartFetcher(cmd, dir) }
}

// mostOutput bounds what run keeps. apt describes a package in some kilobytes.
const mostOutput = 64 << 20

// run returns what the program prints. Its last words of complaint are part of the error.
func (c command) run(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	err := c.stream(ctx, func(r io.Reader) error { _, err := out.ReadFrom(io.LimitReader(r, mostOutput)); return err })
	return out.Bytes(), err
}

// stream hands what the program prints to read, which must read to the end.
func (c command) stream(ctx context.Context, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	cmd.WaitDelay = 5 * time.Second
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	var complaint tail
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	release, err := c.start(cmd)
	if err != nil {
		return startError(c, err)
	}
	defer release()
	readErr := read(out)
	io.Copy(io.Discard, out) // so that the program ends even when read gave up
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("%s %s: %w: %s", c.path, c.args[0], err, lastLines(string(complaint), 4))
	}
	return readErr
}

func startError(c command, err error) error {
	hint := c.hint
	if !errors.Is(err, fs.ErrNotExist) {
		hint = "as root this needs namespaces, mounts and user IDs, which a container may not have: run it on the " +
			"host, or not as root"
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeImageBuild, Message: c.path + " cannot be run",
		Hint: hint, Err: err}
}

// tail keeps the end of what is written to it: a program may complain of a damaged image for gigabytes.
type tail []byte

const mostComplaint = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if over := len(*t) - mostComplaint; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(p), nil
}

// lastLines keeps error texts short.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// ended reports whether err is the end of the caller's context, which is nobody's fault.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
