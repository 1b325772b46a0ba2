package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// tests are what has to be run on batch systems besides the cases: a program, or a package's tests, in its directory
// below this one.
type tests struct {
	dir   string
	build []string // arguments of go; the program's path comes behind
	args  []string // of the program
}

// program builds and runs them, with a line of its output a line of ours. Another exit status than 0 is an error.
func (p *passage) program(ctx context.Context, t tests) (err error) {
	_, source, _, _ := runtime.Caller(0)
	work, err := os.MkdirTemp("", "grange-batch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	program := filepath.Join(work, t.dir)
	build := exec.CommandContext(ctx, "go", append(t.build, "-o", program, ".")...)
	build.Dir = filepath.Join(filepath.Dir(source), t.dir)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", t.dir, err, out)
	}
	cmd := exec.CommandContext(ctx, program, t.args...)
	cmd.Dir = build.Dir
	cmd.Env = append(os.Environ(), "GRANGE_BATCH=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it cleans up
	const cleanup = 2 * time.Minute
	cmd.WaitDelay = cleanup
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	told := make(chan struct{})
	var said []string
	go func() {
		defer close(told)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				said = append(said, strings.TrimSuffix(line, "\n"))
				p.say("%s", said[len(said)-1])
			}
			if err != nil {
				return
			}
		}
	}()
	began := time.Now()
	err = cmd.Run()
	in.Close()
	<-told
	p.Seconds = time.Since(began).Seconds()
	if err != nil {
		return &programFailed{fmt.Errorf("%s: %w", t.dir, err), blamed(said)}
	}
	p.Passed++
	p.say("passed in %.1f s", p.Seconds)
	return nil
}
