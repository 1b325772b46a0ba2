package inside

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/guest"
)

// TestInheritFiles has a process become a job whose input is closed, and whose errors go to /dev/null.
func TestInheritFiles(t *testing.T) {
	if text := os.Getenv("TEST_TRAMPOLINE"); text != "" {
		os.Exit(Trampoline([]string{TrampolineName, text, "/", "/bin/sh", "sh", "-c",
			"test -e /proc/$$/fd/0 || echo closed; readlink /proc/$$/fd/2; nice; echo $GODEBUG"}))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := guest.Process{Null: 1 << 2, Closed: 1, Nice: 3, Blocked: 1 << (syscall.SIGURG - 1),
		Limits: []guest.Limit{{Resource: syscall.RLIMIT_NOFILE, Soft: 20, Hard: 20}}}
	cmd := exec.Command(self, "-test.run", "^TestInheritFiles$")
	cmd.Env = trampolineEnv(append(os.Environ(), "GODEBUG=http2debug=1", "TEST_TRAMPOLINE="+processText(p)), p)
	cmd.Stdin = strings.NewReader("input")
	out, err := cmd.Output()
	if want := "closed\n/dev/null\n3\nhttp2debug=1\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// TestTrampolineEnv: the job has the environment that it is to have, and the trampoline one without preemption.
func TestTrampolineEnv(t *testing.T) {
	urg := guest.Process{Blocked: 1 << (syscall.SIGURG - 1)}
	for _, env := range [][]string{{"A=1"}, {"GODEBUG=", "A=1"}, {"A=1", "GODEBUG=x=1"}, {"GODEBUG=asyncpreemptoff=1"}} {
		with := trampolineEnv(env, urg)
		if slices.Equal(with, env) || !strings.Contains(strings.Join(with, " "), noPreemption) {
			t.Errorf("%q is started with %q", env, with)
		}
		if got := jobEnv(slices.Clone(with), urg.Blocked); !slices.Equal(got, env) {
			t.Errorf("%q is %q", env, got)
		}
		if got := trampolineEnv(env, guest.Process{}); !slices.Equal(got, env) {
			t.Errorf("without URG, %q is started with %q", env, got)
		}
	}
}
