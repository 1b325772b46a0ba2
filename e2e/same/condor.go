package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/batch/condorlab"
	"github.com/grange-project/grange/e2e/batch/conform"
)

// condor is an HTCondor of our own, which starts the program by condor_submit.
type condor struct{ lab *condorlab.Lab }

func openCondor(ctx context.Context, s *site) (system, error) {
	// A job has the limits of its starter, but for core files, and the address space that the site says. Users have no
	// say in its nice value, unless the site asks the job's ad for it.
	l, err := condorlab.Start(ctx, condorlab.Options{Binds: []string{s.top}, Wait: patience,
		Shell: "ulimit -Sn 1500; ulimit -Hn 3000; ulimit -St 3600; ulimit -Ht 7200; ulimit -Ss 16384; ulimit -Hs 65536; " +
			"ulimit -Sl 64; ulimit -Hl 8192; ulimit -Sd 16777216; ulimit -Sf 4194304; ulimit -v 67108864",
		Config: "JOB_RENICE_INCREMENT = 5"})
	if err != nil {
		return nil, err
	}
	return &condor{l}, nil
}

func (*condor) name() string { return "htcondor" }

func (c *condor) Close() error { return c.lab.Close() }

// adapt: a job has the state that its starter gives it. HTCondor knows no line ends.
func (*condor) adapt(in input) input {
	in = in.ofDaemon().withoutLineEnds()
	in.limits = nil
	// A line of a submit file ends with no blank and no backslash, and condor_submit takes two backslashes for one.
	in.dir = strings.ReplaceAll(in.dir, `\\`, `\`) + "d"
	return in
}

func (s *condor) run(ctx context.Context, c *testCase, inVM bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	file, err := c.submitFile(inVM)
	if err != nil {
		return "", err
	}
	cmd := s.lab.UserCommand(ctx, c.submitter().launchWords([]string{"condor_submit", "-terse", file})...)
	cmd.Env = append(cmd.Env, c.environment()...)
	var said, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &errs
	if err := cmd.Run(); err != nil {
		return said.String() + errs.String(), err
	}
	id, err := s.lab.Follow(said.String())
	if err != nil {
		return errs.String(), err
	}
	result, err := s.lab.Wait(ctx, id)
	output, readErr := c.takeFiles()
	if err == nil && result.State != conform.Done {
		err = fmt.Errorf("the job is %v", result)
	}
	return output, errors.Join(err, readErr)
}

// submitFile writes the submit file of a case.
func (c *testCase) submitFile(inVM bool) (path string, err error) {
	script, err := c.script()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	say := func(key, value string) { fmt.Fprintf(&b, "%s = %s\n", key, value) }
	say("universe", "vanilla")
	say("should_transfer_files", "NO")
	say("executable", script)
	say("transfer_executable", "False")
	say("getenv", "True")
	say("initialdir", c.dir)
	say("output", c.path("out"))
	if len(c.args) > 0 {
		say("arguments", condorlab.QuoteWords(c.args))
	}
	if c.stdin == "file" {
		say("input", c.path("input"))
	}
	if c.files == files || c.files == pipes {
		say("error", c.path("err"))
	} else {
		say("error", c.path("out"))
	}
	if !inVM {
		say("+WantVM", "False")
	}
	b.WriteString("queue\n")
	path = c.path("job.sub")
	return path, os.WriteFile(path, []byte(b.String()), 0o644)
}
