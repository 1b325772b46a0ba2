package vm

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
)

// counting prints "up", then lines until its input ends, then exits with 3. Every line must arrive once and in order.
const counting = `echo up; i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; read go; while [ $i -lt 6000 ]; do echo line $i; i=$((i+1)); done; exit 3`

func countingOutput() string {
	var b strings.Builder
	b.WriteString("up\n")
	for i := range 6000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// TestAgentDies kills the agent while a job prints, and starts another: output whole, exit status right.
func TestAgentDies(t *testing.T) {
	j, input := startWithInput(t, "--", "sh", "-c", counting)
	host.KillAgent()
	j.expect(t, "line 2999") // nobody but us carries the job's bytes
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	await(t, host, "the VM in the new agent's ledger", hasState("running"))
	fmt.Fprintln(input, "go")
	j.finish(t).want(t, 3, countingOutput())
}

// TestAgentIsAway ends a job while there is no agent: the status comes back, and the next agent cleans up.
func TestAgentIsAway(t *testing.T) {
	j, input := startWithInput(t, "--", "sh", "-c", counting)
	host.KillAgent()
	fmt.Fprintln(input, "go")
	j.finish(t).want(t, 3, countingOutput())
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestLibvirtdDies(t *testing.T) {
	j, input := startWithInput(t, "--", "sh", "-c", counting)
	if err := host.KillLibvirtd(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(input, "go")
	j.finish(t).want(t, 3, countingOutput())
	if err := host.StartLibvirtd(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if left := host.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	grange(t, "--", "true").want(t, 0, "")
}

// TestLibvirtdIsAway asks for a job while there is no libvirtd: it starts when libvirtd is back.
func TestLibvirtdIsAway(t *testing.T) {
	if err := host.KillLibvirtd(); err != nil {
		t.Fatal(err)
	}
	j := launch(t, host.Exec(ctx(t), "--", "echo", "done"))
	await(t, host, "a job that waits for libvirtd", func(vms []api.VM) bool { return len(vms) == 1 })
	if err := host.StartLibvirtd(ctx(t)); err != nil {
		t.Fatal(err)
	}
	j.finish(t).want(t, 0, "done\n")
}

// TestCallerDies kills `grange exec`: its VM goes, whatever the agent did meanwhile.
func TestCallerDies(t *testing.T) {
	for _, c := range []struct {
		name             string
		before, meantime func()
	}{
		{name: "agent there", before: func() {}, meantime: func() {}},
		{name: "agent away", before: host.KillAgent, meantime: func() {
			if err := host.StartAgent(ctx(t)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := start(t, host, "--", "sh", "-c", "echo up; sleep 1000")
			c.before()
			j.Process.Kill()
			<-j.done
			c.meantime()
			if left := host.Leaks(ctx(t)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestGuestPanics loses the VM under the job: that has an exit status of its own, and the console's end is shown.
func TestGuestPanics(t *testing.T) {
	r := grange(t, "--", "sh", "-c", "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 1000")
	if r.code != 198 || !strings.Contains(r.errors, "in a kernel panic") {
		t.Errorf("status %d, want 198 and the panic on stderr: %s", r.code, r.errors)
	}
}

// TestQEMUIsKilled is the same from the host's side.
func TestQEMUIsKilled(t *testing.T) {
	j := start(t, host, "--", "sh", "-c", "echo up; sleep 1000")
	for _, pid := range host.QEMUs() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if r := j.finish(t); r.code != 198 {
		t.Errorf("status %d, want 198: %s", r.code, r.errors)
	}
}

func startWithInput(t *testing.T, args ...string) (*job, interface{ Write([]byte) (int, error) }) {
	t.Helper()
	cmd := host.Exec(ctx(t), args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close() })
	j := launch(t, cmd)
	j.expect(t, "up")
	return j, input
}
