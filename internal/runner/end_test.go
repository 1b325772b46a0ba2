package runner

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
)

// TestEndings are those of jobs that ran: as on the host.
func TestEndings(t *testing.T) {
	exit := func(code, signal int) outcome {
		return outcome{status: code, exit: &api.Exit{Code: code, Signal: signal}}
	}
	for name, c := range map[string]struct {
		system farm.BatchSystem
		o      outcome
		status int
		signal syscall.Signal
		says   farm.Code
	}{
		"a status":            {farm.Slurm, exit(3, 0), 3, 0, ""},
		"a signal":            {farm.Slurm, exit(139, 11), 139, syscall.SIGSEGV, ""},
		"128+n is a status":   {farm.Slurm, exit(139, 0), 139, 0, ""},
		"199 of its own":      {farm.Slurm, exit(199, 0), 198, 0, CodeStatusTaken},
		"199 means nothing":   {farm.GridEngine, exit(199, 0), 199, 0, ""},
		"197 of its own":      {farm.HTCondor, exit(197, 0), 198, 0, CodeStatusTaken},
		"197 means nothing":   {farm.Slurm, exit(197, 0), 197, 0, ""},
		"99 asks to be again": {farm.GridEngine, exit(99, 0), 99, 0, ""},
		"given up by TERM": {farm.Slurm, outcome{status: 143, err: signalled{syscall.SIGTERM}}, 143,
			syscall.SIGTERM, ""},
		"the VM was lost": {farm.Slurm, outcome{status: 198, err: errors.New("x")}, 198, 0, ""},
	} {
		b := &Batch{Kind: kindOf(c.system), Requeues: 3}
		e := b.end(c.o, func(string) string { return "" }, os.ReadFile)
		if e.status != c.status || e.signal != c.signal || codeOf(e.say) != c.says {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, s := range systems.WithJobs() {
		if kindOf(s).Wrapper.Requeue == 0 {
			t.Errorf("nobody knows how %s queues a job again", s)
		}
	}
}

// TestDie has this test's own program die of each signal, by which its parent can tell it from an exit status.
func TestDie(t *testing.T) {
	if s := os.Getenv("GRANGE_TEST_DIE"); s != "" {
		n, _ := strconv.Atoi(s)
		os.Exit(Die(syscall.Signal(n)))
	}
	for _, s := range []syscall.Signal{1, 2, 3, 6, 8, 9, 10, 11, 13, 14, 15, 24, 25, 31, 34, 64} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDie$")
		cmd.Env = append(os.Environ(), "GRANGE_TEST_DIE="+strconv.Itoa(int(s)))
		cmd.Dir = t.TempDir()
		out, _ := cmd.CombinedOutput()
		w := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !w.Signaled() || w.Signal() != s || w.CoreDump() || len(out) > 0 {
			t.Errorf("signal %d: %v, %s", s, cmd.ProcessState, out)
		}
	}
}
