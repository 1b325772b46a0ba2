// Package program runs programs of the host for what they print: commands of batch systems, of LVM, a site's own. A
// program is run by its absolute path or from the directories of systems, with an environment that is the same
// everywhere, a time limit and bounded output; never by a shell, and never with our environment.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Call is one run of a program.
type Call struct {
	Path   string // absolute, or a name to look for in Dirs
	Args   []string
	Env    []string // on top of PATH, LC_ALL and TZ
	Input  []byte
	Limit  time.Duration // 0: half a minute
	Output int           // most bytes that it may print; 0: 64 MiB, some 100,000 jobs
}

// Run runs a program and returns what it printed. Tests hand drivers another one, which plays recorded output.
type Run func(ctx context.Context, c Call) ([]byte, error)

// Failed is the error of a program that ended with a status of its own.
type Failed struct {
	Program string
	Status  int
	Said    string // on its errors, the first lines
}

func (f *Failed) Error() string {
	if f.Said == "" {
		return fmt.Sprintf("%s ended with status %d", f.Program, f.Status)
	}
	return fmt.Sprintf("%s: %s", f.Program, f.Said)
}

// Said reports whether an error is of a program that said one of these texts.
func Said(err error, texts ...string) bool {
	failed, ok := errors.AsType[*Failed](err)
	return ok && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(failed.Said, text) })
}

// ErrTooMuch is the error when a program prints more than it may.
var ErrTooMuch = errors.New("it prints more than it may")

// ErrTooLong is the error when a program does not end in time.
var ErrTooLong = errors.New("it did not end in time")

// Dirs are where a name is looked for.
var Dirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

const (
	defaultLimit  = 30 * time.Second
	defaultOutput = 64 << 20
	mostErrors    = 4 << 10
)

// Find looks a name up in Dirs and in more; an absolute path stays as it is.
func Find(name string, more ...string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range append(slices.Clone(more), Dirs...) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// Missing reports whether a program was not run because this host does not have it.
func Missing(err error) bool { return errors.Is(err, exec.ErrNotFound) }

// Start runs a program of this host. It and its children are killed when it takes too long: a command of a batch
// system may hang for ever.
func Start(ctx context.Context, c Call) ([]byte, error) {
	path, err := Find(c.Path)
	if err != nil {
		return nil, err
	}
	limit, most := c.Limit, c.Output
	if limit == 0 {
		limit = defaultLimit
	}
	if most == 0 {
		most = defaultOutput
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, c.Args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + strings.Join(Dirs, ":"), "LC_ALL=C", "TZ=UTC"}, c.Env...)
	cmd.Stdin = bytes.NewReader(c.Input)
	out, errs := &bounded{most: most, full: cancel}, &bounded{most: mostErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for a child that keeps the output open
	err = cmd.Run()
	name := filepath.Base(path)
	switch exit := new(exec.ExitError); {
	case out.over:
		return nil, fmt.Errorf("%s: %w: %d bytes", name, ErrTooMuch, most)
	case err == nil:
		return out.kept.Bytes(), nil
	case outer.Err() != nil:
		return nil, context.Cause(outer)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w: %v", name, ErrTooLong, limit)
	case errors.As(err, &exit):
		return out.kept.Bytes(), &Failed{name, exit.ExitCode(),
			strings.TrimSpace(strings.ToValidUTF8(errs.kept.String(), "?"))}
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	kept bytes.Buffer // not embedded: io.Copy would find its ReadFrom, which knows no bounds
	most int
	over bool
	full func() // nil: what is too much is thrown away
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - b.kept.Len(); len(p) > room {
		b.kept.Write(p[:room])
		if b.full != nil {
			b.over = true
			b.full()
		}
		return len(p), nil
	}
	return b.kept.Write(p)
}
