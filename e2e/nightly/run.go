package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// attempt is one run of a suite.
type attempt struct {
	Began   time.Time       `json:"began"`
	Seconds int             `json:"seconds"`
	Passed  bool            `json:"passed"`
	Cut     bool            `json:"cut,omitempty"`     // no time was left: it neither passed nor failed
	Error   string          `json:"error,omitempty"`   // why it did not pass
	Figures json.RawMessage `json:"figures,omitempty"` // its last line
}

// endWithin is how long a suite may take to end after an interrupt, before it is killed.
const endWithin = 2 * time.Minute

// ofMake reports whether a variable is what the make that runs this program gives to another one below it: its ARGS,
// and that it is to name its directories behind the figures.
func ofMake(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"ARGS", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"}, name)
}

// run runs a suite once. Its output goes to the writer as well.
func (s suite) run(ctx context.Context, out io.Writer) (a attempt) {
	cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
	cmd.Env = slices.DeleteFunc(os.Environ(), ofMake)
	a.Began = time.Now().UTC().Truncate(time.Second)
	last := &lastLine{}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, last), out
	// All of the suite hears of the end: make and "go run" hand no signal on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = endWithin
	err := cmd.Run()
	a.Seconds = int(time.Since(a.Began).Seconds())
	if ctx.Err() != nil {
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // those that did not end
		}
		a.Cut, a.Error = true, context.Cause(ctx).Error()
		return a
	}
	if a.Figures, err = figuresOf(last.line, err); err != nil {
		a.Error = err.Error()
		return a
	}
	a.Passed = true
	return a
}

// figuresOf reads the last line of a suite. A suite that ends well and says nothing of failures did not pass.
func figuresOf(line []byte, ended error) (json.RawMessage, error) {
	var f struct {
		Failed any `json:"failed"`
	}
	if err := json.Unmarshal(line, &f); err != nil {
		if ended != nil {
			return nil, ended
		}
		return nil, fmt.Errorf("the last line is not JSON: %.80q", line)
	}
	switch failed := f.Failed.(type) {
	case nil:
		ended = errors.Join(ended, errors.New(`the last line has no "failed"`))
	case float64:
		if failed != 0 && ended == nil {
			ended = fmt.Errorf("%v failed", failed)
		}
	case []any:
		if len(failed) > 0 && ended == nil {
			ended = fmt.Errorf("failed: %v", failed)
		}
	case bool:
		if failed && ended == nil {
			ended = errors.New("failed")
		}
	default:
		ended = errors.Join(ended, fmt.Errorf(`"failed" is %v`, failed))
	}
	return bytes.Clone(line), ended
}

// lastLine keeps the last line of what is written that is not empty.
type lastLine struct{ line, open []byte }

func (l *lastLine) Write(text []byte) (int, error) {
	n := len(text)
	for {
		before, after, whole := bytes.Cut(text, []byte{'\n'})
		l.open = append(l.open, before...)
		if len(bytes.TrimSpace(l.open)) > 0 {
			l.line = bytes.Clone(l.open)
		}
		if !whole {
			return n, nil
		}
		l.open, text = l.open[:0], after
	}
}

// machine is where suites ran.
type machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	MemoryGiB int    `json:"memory_gib"`
	Kernel    string `json:"kernel"`
	System    string `json:"system"`
}

// record is the file of a suite.
type record struct {
	Suite    string    `json:"suite"`
	Command  string    `json:"command"`
	Commit   string    `json:"commit"`
	Changed  bool      `json:"changed,omitempty"` // the tree had changes that are not committed
	Machine  machine   `json:"machine"`
	Passed   bool      `json:"passed"`
	Attempts []attempt `json:"attempts"`
}

// keep writes the record to its file, whole or not at all.
func (r record) keep(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
