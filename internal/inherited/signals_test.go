package inherited

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSignals starts a program with signals that its caller ignores: with the entry all of them are known, without it
// HUP and INT are. A closed standard file, which the runtime opens as /dev/null, is known with the entry only. Another
// program that it becomes finds them as they were.
func TestSignals(t *testing.T) {
	const ignoring = "trap '' HUP INT QUIT PIPE 64; exec "
	status, err := exec.Command("/bin/bash", "-c", ignoring+"grep SigIgn /proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The processes above this test may ignore signals, too.
	ignored := strings.TrimSpace(strings.TrimPrefix(string(status), "SigIgn:"))
	for flags, want := range map[string]string{
		"-E=github.com/grange-project/grange/internal/inherited/early.entry": ignored + " 0 1 100\n",
		"": "3 0 101 0\n"} {
		program := filepath.Join(t.TempDir(), "signals")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", program, "./testdata/signals")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := exec.Command("/bin/bash", "-c", ignoring+program+" </dev/null 2>&-").Output()
		if err != nil || string(out) != want {
			t.Errorf("linked with %q: %q, %v; want %q", flags, out, err, want)
		}
		if flags == "" {
			continue
		}
		become := exec.Command("/bin/bash", "-c", ignoring+program+" 2>&-")
		become.Env = append(os.Environ(),
			"BECOME=grep SigIgn /proc/self/status; [ ! -e /proc/self/fd/2 ] && echo closed")
		out, err = become.Output()
		if err != nil || string(out) != string(status)+"closed\n" {
			t.Errorf("the program that it became printed %q, %v; want %q", out, err, status)
		}
	}
}

// TestHeldStop: each thread of a job's wrapper blocks TSTP, and of nothing else; what a wrapper executes does not.
func TestHeldStop(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "grange")
	build := exec.Command("go", "build", "-trimpath", "-ldflags",
		"-E=github.com/grange-project/grange/internal/inherited/early.entry", "-o", program, "./testdata/signals")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	link := filepath.Join(dir, "grange-exec-pbs")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	const free = "SigBlk:\t0000000000000000"
	for _, c := range []struct {
		held bool
		line []string
	}{{true, []string{program, "exec", "--", "x"}}, {true, []string{program, "--json", "exec", "x"}},
		{true, []string{program, "slurm", "oci", "run"}}, {true, []string{program, "htcondor", "wrapper", "--", "x"}},
		{true, []string{link, "x"}}, {false, []string{program, "vm", "list"}}, {false, []string{program, "execs"}},
		{false, []string{program, "vm", "--", "exec"}}, {false, []string{program, "ex", "ec", ""}}} {
		out, err := exec.Command(c.line[0], c.line[1:]...).Output()
		if err != nil {
			t.Fatal(c.line, err)
		}
		lines := strings.Split(string(out), "\n")
		blocked := strings.Fields(lines[0])[1] // ignored are those that whoever started the tests ignores
		if held := lines[1] == "0"; held != c.held || lines[2] != free || blocked != "0" {
			t.Errorf("%v: held %t, %q", c.line[1:], held, lines)
		}
	}
}
