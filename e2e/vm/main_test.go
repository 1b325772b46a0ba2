// Package vm tests grange with real VMs: a private libvirtd, an agent, and the micro image.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// host is the lab that all tests share. A test that breaks it for others starts its own.
var host *lab.Lab

func TestMain(m *testing.M) {
	if os.Getenv(cloudConfigVar) != "" {
		os.Exit(m.Run()) // it has another test's lab
	}
	takeBackSignals()
	var err error
	if host, err = lab.Start(context.Background(), lab.Options{Config: testConfig}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if left := host.Leaks(context.Background()); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left on the host after all tests:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the agent's log:\n%s\n", host.AgentLog())
	}
	if err := host.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// takeBackSignals has commands of the tests get signals that whoever started the tests ignores, as nohup does.
func takeBackSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // processes that are started have the default action then
		}
	}
}

const testConfig = `
[facts]
hs06 = "357"
[shapes.wide]
cpus = 2
memory = "512M"
[batch]
binds = ["/nonexistent:ro"]
[[policy]]
name = "jobs of slurm"
systems = ["slurm"]
image = "micro"
images = ["micro"]
`

// limit is the longest that one command may take on a slow, busy machine. It ends hung tests; nothing is measured.
const limit = 6 * time.Minute

// result is how a command ended.
type result struct {
	code        int
	out, errors string
}

// run runs a prepared command to its end.
func run(t *testing.T, cmd *exec.Cmd, input string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return c
}

// grange runs `grange exec` with small VMs.
func grange(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, host.Exec(ctx(t), args...), "")
}

func (r result) wantCode(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Fatalf("status %d: %s", r.code, r.errors)
	}
}

func (r result) want(t *testing.T, code int, out string) {
	t.Helper()
	if r.code != code || r.out != out {
		t.Errorf("status %d, output %q; want %d, %q\nstderr: %s", r.code, r.out, code, out, r.errors)
	}
}

// job is a `grange exec` that goes on while the test looks at it.
type job struct {
	*exec.Cmd
	out  *lineReader
	errs bytes.Buffer
	done chan struct{}
}

// start starts a job and waits for the line "up" that its command must print first.
func start(t *testing.T, l *lab.Lab, args ...string) *job {
	t.Helper()
	j := launch(t, l.Exec(ctx(t), args...))
	j.expect(t, "up")
	return j
}

func launch(t *testing.T, cmd *exec.Cmd) *job {
	t.Helper()
	j := &job{Cmd: cmd, out: newLineReader(), done: make(chan struct{})}
	j.Stdout, j.Stderr = j.out, &j.errs
	if j.Stdin == nil {
		j.Stdin = strings.NewReader("")
	}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.Wait(); j.out.end(); close(j.done) }()
	t.Cleanup(func() {
		j.Process.Kill()
		<-j.done
	})
	return j
}

// expect waits for a line of output.
func (j *job) expect(t *testing.T, line string) {
	t.Helper()
	if !j.out.await(line) {
		<-j.done
		t.Fatalf("the job ended without printing %q\nstatus: %v\nstdout: %q\nstderr: %s", line, j.ProcessState,
			j.out.text(), j.errs.String())
	}
}

// finish waits for the end.
func (j *job) finish(t *testing.T) result {
	t.Helper()
	<-j.done
	return result{j.ProcessState.ExitCode(), j.out.text(), j.errs.String()}
}

// openUp lets an ordinary user through to a directory that the test made.
func openUp(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} { // what t.TempDir makes
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until the agent's list satisfies want.
func await(t *testing.T, l *lab.Lab, what string, want func([]api.VM) bool) {
	t.Helper()
	for c := ctx(t); ; time.Sleep(20 * time.Millisecond) {
		vms, err := l.Client.VMs(c)
		if err == nil && want(vms) {
			return
		}
		if c.Err() != nil {
			t.Fatalf("never saw: %s; last %+v, %v", what, vms, err)
		}
	}
}

func noVMs(vms []api.VM) bool { return len(vms) == 0 }

func hasState(state string) func([]api.VM) bool {
	return func(vms []api.VM) bool { return len(vms) == 1 && vms[0].State == state }
}
