package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
)

// The programs by which users start jobs of Slurm.
const (
	sbatch = "sbatch"
	srun   = "srun"
)

// slurmSystem is a Slurm of our own, which starts the program as a job on the host and in a VM.
type slurmSystem struct {
	lab     *slurmlab.Lab
	program string
}

func openSlurm(program string) func(context.Context, *site) (system, error) {
	return func(ctx context.Context, s *site) (system, error) {
		agent := fmt.Sprintf("[batch]\nbinds = [%q]\nwait_timeout = %q\n", s.top, patience)
		l, err := slurmlab.Start(ctx, slurmlab.Options{Agent: agent})
		if err != nil {
			return nil, err
		}
		return &slurmSystem{l, program}, nil
	}
}

func (s *slurmSystem) name() string { return s.program }

func (s *slurmSystem) Close() error { return s.lab.Close() }

// adapt: Slurm takes the groups from the user database, and jobs of root are those of the administrator.
func (*slurmSystem) adapt(in input) input {
	in.uid, in.groups = 65534, []uint32{65534}
	return in
}

func (s *slurmSystem) run(ctx context.Context, c *testCase, inVM bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	args := []string{"--mem=600", "--chdir=" + c.dir}
	if !inVM {
		args = append(args, "--no-vm")
	}
	if s.program == srun {
		output, err := c.start(s.launched(ctx, c, append(append(args, "--quiet", "--ntasks=1", "--"), c.words()...)))
		return byStream(output), err
	}
	return s.batch(ctx, c, args)
}

// launched is the program of Slurm, started by launch.
func (s *slurmSystem) launched(ctx context.Context, c *testCase, args []string) *exec.Cmd {
	tool := s.lab.Command(ctx, slurmlab.User, s.program, args...)
	cmd := c.launched(ctx, tool.Args)
	i := slices.IndexFunc(tool.Env, func(kv string) bool { return strings.HasPrefix(kv, "SLURM_CONF=") })
	cmd.Env = append(cmd.Env, tool.Env[i])
	return cmd
}

// byStream puts the lines of the program's standard output before all others. srun carries the two streams on their
// own, and their order is by chance, on the host too.
func byStream(output string) string {
	lines := slices.Collect(strings.Lines(output))
	slices.SortStableFunc(lines, func(a, b string) int { return rank(a) - rank(b) })
	return strings.Join(lines, "")
}

func rank(line string) int {
	if strings.HasPrefix(line, "o") {
		return 0
	}
	return 1
}

// batch submits a script that becomes the program. The job's standard files are those that options of sbatch name.
func (s *slurmSystem) batch(ctx context.Context, c *testCase, args []string) (string, error) {
	script, err := c.script()
	if err != nil {
		return "", err
	}
	args = append(args, "--parsable", "--output="+c.path("out"))
	if c.stdin == "file" {
		args = append(args, "--input="+c.path("input"))
	}
	switch c.files {
	case files, pipes:
		args = append(args, "--error="+c.path("err"))
	case appends:
		args = append(args, "--open-mode=append")
	}
	cmd := s.launched(ctx, c.submitter(), append(append(args, script), c.args...))
	var id, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &id, &errs
	if err := cmd.Run(); err != nil {
		return errs.String(), err
	}
	result, err := s.lab.Wait(ctx, strings.TrimSpace(id.String()))
	output, readErr := c.takeFiles()
	if err == nil && result.State != conform.Done {
		err = fmt.Errorf("the job is %s: %s", result.State, result.Reason)
	}
	return output, errors.Join(err, readErr)
}
