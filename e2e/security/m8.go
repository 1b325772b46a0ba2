package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// allCPUs has one account ask for two VMs that together have all CPUs, and another one for a small VM.
func allCPUs(ctx context.Context, s *site) error {
	if runtime.NumCPU() < 2 {
		return nil // there is nothing to share
	}
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	half := []string{"--cpus", fmt.Sprint((runtime.NumCPU() + 1) / 2), "--memory", "192M"}
	return s.hog(ctx, l, [][]string{half, half}, "--memory", "192M")
}

// allDisks has one account ask for all disk space that is left, and another one for a little.
func allDisks(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(l.Dir, &fs); err != nil {
		return err
	}
	const gib = 1 << 30
	free := fs.Bavail * uint64(fs.Bsize) / gib
	if free < 16 {
		return fmt.Errorf("%d GiB free is too little to tell", free)
	}
	// one GiB is the host's own, in another one files come and go
	most := []string{"--memory", "192M", "--cpus", "1", "--scratch", fmt.Sprintf("%dG", free-2)}
	return s.hog(ctx, l, [][]string{most}, "--memory", "192M", "--scratch", "4G", "--cpus", "1")
}

// hog has one account hold what it is given of requests, and another one start a VM beside it without waiting.
func (s *site) hog(ctx context.Context, l *lab.Lab, requests [][]string, modest ...string) error {
	greedy, err := s.account(1)
	if err != nil {
		return err
	}
	holding, stop := context.WithCancel(ctx)
	defer stop()
	var cmds []*exec.Cmd
	for _, flags := range requests {
		cmds = append(cmds, greedy.exec(holding, l, append(flags, "--", "sh", "-c", "echo RUNS; exec sleep 600")...))
	}
	return s.holdAll(ctx, l, cmds, modest...)
}

// holdAll has commands of one account hold what they are given, and another account start a VM beside them without
// waiting.
func (s *site) holdAll(ctx context.Context, l *lab.Lab, cmds []*exec.Cmd, modest ...string) error {
	victim, err := s.account(2)
	if err != nil {
		return err
	}
	said := make([]*lines, len(cmds))
	for i, cmd := range cmds {
		if said[i], err = follow(cmd); err != nil {
			return err
		}
		defer cmd.Wait()
		defer cmd.Cancel()
		if err := said[i].await(ctx); err != nil {
			return err
		}
	}
	out, err := victim.exec(ctx, l, append(modest, "--no-wait", "--", "true")...).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case strings.Contains(string(out), "[no-room]"), strings.Contains(string(out), "[disk-full]"):
		return breach("one account holds all of it: %s", out)
	}
	return fmt.Errorf("the other account's VM: %w: %s", err, out)
}

// lines is what a command has said so far.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// follow starts a `grange exec`, which TERM ends, and keeps what it says.
func follow(cmd *exec.Cmd) (*lines, error) {
	said := new(lines)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return said, cmd.Start()
}

// await returns when the command runs in its VM, waits for room, or was refused.
func (l *lines) await(ctx context.Context) error {
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		for _, word := range []string{"RUNS", "user-limit", "you may have", "waiting", "[no-room]", "[disk-full]"} {
			if strings.Contains(text, word) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("neither runs nor waits: %w: %s", context.Cause(ctx), text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
