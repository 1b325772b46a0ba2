package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// clockOff asks a job that prints its time for each line how far its clock is off the host's: at least.
func clockOff(t *testing.T, input io.Writer, out *bufio.Reader) time.Duration {
	t.Helper()
	asked := time.Now()
	fmt.Fprintln(input)
	line, err := out.ReadString('\n')
	came := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	off, err := lab.ClockOff(asked, came, line)
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// clockJob is a job that prints its time for each line.
type clockJob struct {
	*exec.Cmd
	input io.WriteCloser
	out   *bufio.Reader
}

func startClockJob(t *testing.T, cmd *exec.Cmd) clockJob {
	t.Helper()
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGCONT); cmd.Process.Kill() })
	j := clockJob{cmd, input, bufio.NewReader(output)}
	// Without KVM a kernel reads its first time to the second.
	t.Logf("at the start the clock is off by %v", clockOff(t, j.input, j.out))
	return j
}

// end has the job end by itself.
func (j clockJob) end(t *testing.T) {
	t.Helper()
	j.input.Close()
	if err := j.Wait(); err != nil {
		t.Error(err)
	}
}

// pausing is a way of stopping the CPUs of a job's VM, and of letting them go on.
type pausing struct {
	stop, start func() error
	stopped     func(*testing.T)
	later       time.Duration // for how long the clock may be wrong where nobody is told before the VM goes on
}

func (j clockJob) pausings(t *testing.T, name string) map[string]pausing {
	order := func(do func(context.Context, string) (api.VM, error)) func() error {
		return func() error { _, err := do(ctx(t), name); return err }
	}
	signal := func(s syscall.Signal) func() error { return func() error { return j.Process.Signal(s) } }
	virsh := func(command string) func() error {
		return func() error { _, err := host.Virsh(ctx(t), command, name); return err }
	}
	qemu := func(s syscall.Signal) func() error {
		return func() (err error) {
			for _, pid := range host.QEMUs() {
				err = errors.Join(err, syscall.Kill(pid, s))
			}
			return err
		}
	}
	shows := func(state string) func(*testing.T) {
		return func(t *testing.T) { await(t, host, "a VM that is "+state, hasState(state)) }
	}
	nothing := func(*testing.T) {}
	return map[string]pausing{
		"suspend and resume": {order(host.Client.Suspend), order(host.Client.Resume), shows("suspended"), 0},
		"TSTP and CONT":      {signal(syscall.SIGTSTP), signal(syscall.SIGCONT), shows("suspended"), 0},
		"an administrator":   {virsh("suspend"), virsh("resume"), nothing, 5 * time.Second},
		"a stopped QEMU":     {qemu(syscall.SIGSTOP), qemu(syscall.SIGCONT), nothing, 5 * time.Second},
	}
}

// right fails unless the clock is right after a pause.
func (j clockJob) right(t *testing.T, way pausing) {
	const pause = 3 * time.Second
	if err := way.stop(); err != nil {
		t.Fatal(err)
	}
	way.stopped(t)
	time.Sleep(pause)
	if err := way.start(); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(way.later)
	off := clockOff(t, j.input, j.out)
	t.Logf("at first the clock is off by %v", off)
	for off > lab.ClockNear && time.Now().Before(until) {
		off = clockOff(t, j.input, j.out)
	}
	if off > lab.ClockNear {
		t.Errorf("the clock is off by %v", off)
	}
}

// TestClock: the guest's clock is right after each way of stopping the CPUs of a job's VM, also for a job that goes on
// by what it reads from its caller.
func TestClock(t *testing.T) {
	j := startClockJob(t, host.Exec(ctx(t), "--", "sh", "-c", lab.TellTimes))
	for name, way := range j.pausings(t, vmName(t)) {
		t.Run(name, func(t *testing.T) { j.right(t, way) })
	}
	j.end(t)
}

// TestClockOfBatchJob: the same where a batch system stops the job's caller alone, and where it freezes the whole job.
func TestClockOfBatchJob(t *testing.T) {
	g := newStepGroups(t, 0)
	j := startClockJob(t, g.exec(t, "--", "sh", "-c", lab.TellTimes))
	signal := func(s syscall.Signal) func() error { return func() error { return j.Process.Signal(s) } }
	freezer := func(state string) func() error {
		file := filepath.Join(filepath.Dir(g.dir("freezer")), "freezer.state")
		return func() error { return os.WriteFile(file, []byte(state), 0) }
	}
	stopped := func(t *testing.T) {
		eventually(t, "the VM of a stopped caller is suspended",
			func() bool { return g.vm(t).State == "suspended (caller stopped)" })
	}
	for name, way := range map[string]pausing{
		"STOP and CONT": {signal(syscall.SIGSTOP), signal(syscall.SIGCONT), stopped, 0},
		"a frozen job":  {freezer("FROZEN"), freezer("THAWED"), stopped, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) { j.right(t, way) })
	}
	j.end(t)
}
