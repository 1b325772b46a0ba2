package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// system starts the program as its users would. What a system does not let a user choose (the limits of a job, say)
// it leaves out on both sides alike.
type system interface {
	// run starts the program of a case, on the host or in a VM, and returns when its report is in c.report. It returns
	// what the case's standard output and error have then.
	run(ctx context.Context, c *testCase, inVM bool) (output string, err error)
	// adapt takes out of an input what the system does not let a user choose at all.
	adapt(in input) input
	// name is the column of the list that the differences are looked up in.
	name() string
	Close() error
}

// patience is wait_timeout of agents: the machine may be busy with other tests.
const patience = "30s"

// opener makes a system ready.
type opener struct {
	name string
	open func(context.Context, *site) (system, error)
}

// openers are all systems.
var openers = []opener{{"exec", openExec}, {"sbatch", openSlurm(sbatch)}, {"srun", openSlurm(srun)},
	{"gridengine", openGridEngine}, {"htcondor", openCondor}}

func names() (all []string) {
	for _, o := range openers {
		all = append(all, o.name)
	}
	return all
}

// testCase is an input with the files of one comparison.
type testCase struct {
	input
	site   *site
	top    string // of this comparison; owned by the user
	dir    string // working directory, below top
	report string // where the program writes
}

func (s *site) newCase(in input, system string) (*testCase, error) {
	c := &testCase{input: in, site: s, top: filepath.Join(s.top, fmt.Sprintf("%s-%d", system, in.number))}
	c.dir, c.report = filepath.Join(c.top, in.dir), filepath.Join(c.top, "report")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.path("input"), []byte("one line of input\n"), 0o644); err != nil {
		return nil, err
	}
	return c, filepath.Walk(c.top, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, in.uid, in.uid)
	})
}

func (c *testCase) path(name string) string { return filepath.Join(c.top, name) }

// environment is what the program is started with.
func (c *testCase) environment() []string {
	return append([]string{"PATH=/usr/bin:/bin", "HOME=" + c.top, "SAME_REPORT=" + c.report}, c.env...)
}

// words are the program with its arguments.
func (c *testCase) words() []string { return append([]string{c.site.probe}, c.args...) }

// script writes a script that becomes the program, and returns its path.
func (c *testCase) script() (path string, err error) {
	path = c.path("script")
	return path, os.WriteFile(path, []byte("#!/bin/sh\nexec "+c.site.probe+" \"$@\"\n"), 0o755)
}

// submitter is the case of a program that submits the job, whose standard files the job does not get.
func (c *testCase) submitter() *testCase {
	s := *c
	s.files, s.stdin = pipes, "null"
	return &s
}

// launchWords are the command line of launch, which becomes argv.
func (c *testCase) launchWords(argv []string) []string {
	return append(append(append([]string{c.site.launch}, c.input.options(c)...), "dir="+c.dir, "--"), argv...)
}

// launched is argv, started by launch in the state that the input describes.
func (c *testCase) launched(ctx context.Context, argv []string) *exec.Cmd {
	words := c.launchWords(argv)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = c.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid), Groups: c.groups}}
	return cmd
}

// compare runs one input on both sides.
func (s *site) compare(ctx context.Context, sys system, in input, listed []row) ([]difference, error) {
	c, err := s.newCase(sys.adapt(in), sys.name())
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(c.top)
	var seen [2]map[string]string
	for i, inVM := range []bool{false, true} {
		output, err := sys.run(ctx, c, inVM)
		if err != nil {
			side := map[bool]string{false: "host", true: "VM"}[inVM]
			return nil, fmt.Errorf("%s: %w\n%s\n%s", side, err, c.input, output)
		}
		if seen[i], err = readReport(c.report); err != nil {
			return nil, fmt.Errorf("%w\n%s\n%s", err, c.input, output)
		}
		seen[i]["output"] = strings.ReplaceAll(output, "\n", " ")
		if err := os.Remove(c.report); err != nil {
			return nil, err
		}
	}
	return differences(sys.name(), seen[0], seen[1], listed), nil
}

// takeFiles returns what the program wrote to files, and removes them.
func (c *testCase) takeFiles() (output string, err error) {
	for _, name := range []string{"out", "err"} {
		text, readErr := os.ReadFile(c.path(name))
		if readErr != nil {
			continue
		}
		output += string(text)
		err = errors.Join(err, os.Remove(c.path(name)))
	}
	return output, err
}
