package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// report is one archive of testdata.
type report struct {
	files  map[string]string
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
	head, files, err := readArchive(path)
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

// readArchive returns the text before the first file, and the files of a txtar archive.
func readArchive(path string) (head string, files map[string]string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	name, files := "", map[string]string{}
	for line := range strings.Lines(string(text)) {
		inner, ok := strings.CutPrefix(line, "-- ")
		inner, closed := strings.CutSuffix(inner, " --\n")
		switch {
		case ok && closed:
			name = inner
			files[name] = ""
		case name == "":
			head += line
		default:
			files[name] += line
		}
	}
	return head, files, nil
}

// tree returns the files of the host: those of the archive below, replaced and removed by the case's own.
func (c *report) tree() (map[string]string, error) {
	out := map[string]string{}
	if c.over != "" {
		_, base, err := readArchive(c.over)
		if err != nil {
			return nil, err
		}
		out = base
	}
	for name, text := range c.files {
		if text == "-\n" {
			maps.DeleteFunc(out, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
		}
	}
	for name, text := range c.files {
		if text != "-\n" {
			out[name] = text
		}
	}
	return out, nil
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
