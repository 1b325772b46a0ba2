package inside

import (
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/inherited"
)

// TestInherit has a process become a job by the trampoline: a program sees the umask, signals and limits that it was
// given, and no more than the process had.
func TestInherit(t *testing.T) {
	if os.Getenv("TEST_TRAMPOLINE") != "" {
		os.Exit(Trampoline([]string{TrampolineName, os.Getenv("TEST_TRAMPOLINE"), "/", "/bin/cat", "cat",
			"/proc/self/limits", "/proc/self/status"}))
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestInherit$")
	process := guest.Process{Umask: new(uint32(0o27)), Ignored: 1<<12 | 1<<62 | 1, Blocked: 1<<63 | 1<<1, Nice: 3}
	process.Limits = []guest.Limit{
		{Resource: unix.RLIMIT_CORE}, {Resource: unix.RLIMIT_CPU, Soft: 3600, Hard: 7200},
		{Resource: unix.RLIMIT_FSIZE, Soft: 1 << 30, Hard: math.MaxUint64},
		{Resource: unix.RLIMIT_NOFILE, Soft: 77, Hard: math.MaxUint64}, {Resource: 99, Soft: 1, Hard: 1}}
	cmd.Env = append(os.Environ(), "TEST_TRAMPOLINE="+processText(process))
	const untouched = 32 // the runtime of Go leaves this signal as it was
	inherited.IgnoreSignal(untouched, true)
	defer inherited.IgnoreSignal(untouched, false)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"\nUmask:\t0027\n",
		"\nSigBlk:\t8000000000000002\n", "\nSigIgn:\t4000000000001001\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	seen := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if len(line) > 26 {
			seen[strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:]), " ")
		}
	}
	for name, want := range map[string]string{"Max core file size": "0 0 bytes", "Max cpu time": "3600 7200 seconds",
		"Max file size": "1073741824 unlimited bytes"} {
		if seen[name] != want {
			t.Errorf("%s is %q, want %q", name, seen[name], want)
		}
	}
	if !strings.HasPrefix(seen["Max open files"], "77 ") {
		t.Errorf("open files are %q", seen["Max open files"])
	}
}
