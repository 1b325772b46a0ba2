package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/reports/generate"
)

// report is one archive of testdata.
type report struct {
	files  generate.Tree
	over   string
	args   []string
	demand demand
}

// demand is what a command must print and return.
type demand struct {
	want, not []*regexp.Regexp
	status    int // -1: any
}

// readCase reads an archive with the demands at its head.
func readCase(path string) (*report, error) {
	head, files, err := generate.Archive(path)
	if err != nil {
		return nil, err
	}
	c := &report{files: files, demand: demand{status: -1}}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if err := c.set(key, value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, key, err)
		}
	}
	if len(c.args) == 0 || len(c.demand.want)+len(c.demand.not) == 0 {
		return nil, fmt.Errorf("%s needs a Run line, and a Want or a Not line", path)
	}
	return c, nil
}

func (c *report) set(key, value string) (err error) {
	switch key {
	case "Over":
		c.over = value
	case "Run":
		c.args = strings.Fields(value)
	case "Status":
		c.demand.status, err = strconv.Atoi(value)
	case "Want", "Not":
		re, compileErr := regexp.Compile(value)
		if key == "Want" {
			c.demand.want = append(c.demand.want, re)
		} else {
			c.demand.not = append(c.demand.not, re)
		}
		err = compileErr
	}
	return err
}

// tree returns the files of the host: those of the archive below, replaced and removed by the case's own.
func (c *report) tree() (generate.Tree, error) {
	base := generate.Tree{}
	if c.over != "" {
		var err error
		if _, base, err = generate.Archive(c.over); err != nil {
			return nil, err
		}
	}
	return base.Over(c.files), nil
}

// oneCommand bounds a command. The slowest compiles a test of the repository.
const oneCommand = 10 * time.Minute

// run runs the command on the host, and returns each demand that is not met.
func (c *report) run(ctx context.Context, binary string) error {
	ctx, cancel := context.WithTimeout(ctx, oneCommand)
	defer cancel()
	program, args := binary, c.args
	if args[0] == "go" {
		program, args = args[0], args[1:]
	} else {
		dir, err := os.MkdirTemp("", "report-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := c.write(dir); err != nil {
			return err
		}
		args = append(args[:len(args):len(args)], "--from", dir)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return err
	}
	return c.demand.check(cmd.ProcessState.ExitCode(), out.String())
}

func (c *report) write(dir string) error {
	files, err := c.tree()
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// check compares a status and an output with the demand.
func (d demand) check(status int, out string) error {
	text := strings.Join(strings.Fields(out), " ")
	var errs []error
	for _, re := range d.want {
		if !re.MatchString(text) {
			errs = append(errs, fmt.Errorf("not printed: %s", re))
		}
	}
	for _, re := range d.not {
		if found := re.FindString(text); found != "" {
			errs = append(errs, fmt.Errorf("printed: %s", found))
		}
	}
	if d.status >= 0 && status != d.status {
		errs = append(errs, fmt.Errorf("status %d, want %d", status, d.status))
	}
	return errors.Join(errs...)
}
