package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lab"
)

// job is one that says what it is told, in a VM, as long as the upgrade lasts. Its caller is of the old release all the
// time.
type job struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  strings.Builder
	told  int
}

// startJob starts it, and sees that it runs.
func startJob(ctx context.Context, h *lab.Lab) (*job, error) {
	j := &job{cmd: h.Exec(ctx, "--image", farmlab.Image, "--memory", "192M", "--", "cat"), lines: make(chan string)}
	j.cmd.Stderr = &j.errs
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			j.lines <- s.Text()
		}
	}()
	return j, j.talk(ctx)
}

// timeout is how long the job may take to answer: its VM may still have to start.
const timeout = 2 * time.Minute

// talk sends the job a line, and reads it back.
func (j *job) talk(ctx context.Context) error {
	j.told++
	line := fmt.Sprintf("line %d", j.told)
	if _, err := fmt.Fprintln(j.in, line); err != nil {
		return fmt.Errorf("tell the job: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("the job does not answer"))
	defer cancel()
	select {
	case heard, ok := <-j.lines:
		if !ok || heard != line {
			return fmt.Errorf("the job was told %q and said %q", line, heard)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shortJob is one that a release's program runs on a host whose agent may be of another one.
func (u *upgrade) shortJob(ctx context.Context, host int, programs string) error {
	h := u.farm.Hosts[host]
	cmd := exec.CommandContext(ctx, grange(programs), "exec", "--image", farmlab.Image, "--memory", "192M", "--", "sh",
		"-c", "echo works; exit 7")
	cmd.Env = append(os.Environ(), "GRANGE_SOCKET="+h.Socket)
	out, err := output(cmd)
	if out != "works\n" || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
		return fmt.Errorf("a job by %s for %s: %q: %v", programs, farmlab.HostName(host), out, err)
	}
	return nil
}

// finishJob ends its input: it has to end well, and to have said nothing else.
func (u *upgrade) finishJob(ctx context.Context) error {
	j := u.job
	if err := j.talk(ctx); err != nil {
		return err
	}
	u.job = nil
	j.in.Close()
	for line := range j.lines {
		return errors.Join(fmt.Errorf("the job also said %q", line), j.cmd.Process.Kill(), j.cmd.Wait())
	}
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("the job: %w: %s", err, j.errs.String())
	}
	return nil
}

// endJob ends it where something went wrong before.
func (u *upgrade) endJob() {
	if u.job == nil {
		return
	}
	u.job.cmd.Process.Kill()
	go func() {
		for range u.job.lines {
		}
	}()
	u.job.cmd.Wait()
}
