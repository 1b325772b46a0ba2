package slurmlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUserEnv: what makes slurmd run `su - USER` on the host, as guide and check say, and that a su that does nothing,
// as install has it, keeps no job from its VM.
func TestUserEnv(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	calls, su := filepath.Join(dir, "calls"), filepath.Join(dir, "su")
	if err := os.WriteFile(su, fmt.Appendf(nil, "#!/bin/sh\necho \"$*\" >>%s\nexit 1\n", calls), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Start(ctx, Options{Su: su})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(l.Home(), "where.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat /proc/sys/kernel/random/boot_id\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, env string
		args      []string
		starts    bool
	}{
		{name: "plain"},
		{name: "--get-user-env", args: []string{"--get-user-env"}, starts: true},
		{name: "--export=NONE", args: []string{"--export=NONE"}, starts: true},
		{name: "--export with a list", args: []string{"--export=ALL,A=1"}, starts: true},
		{name: "the variable alone", env: "SLURM_GET_USER_ENV=1", starts: true},
	} {
		os.Remove(calls)
		out := filepath.Join(l.Home(), "where.out")
		cmd := l.Command(ctx, User, "sbatch",
			append(append([]string{"--vm=micro", "--parsable", "--output=" + out}, c.args...), script)...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		id, err := run(cmd)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, err := l.Wait(ctx, strings.TrimSpace(id)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if text, err := os.ReadFile(out); err != nil || len(text) != len(host) || string(text) == string(host) {
			t.Errorf("%s: not in a VM: %q, %v", c.name, text, err)
		}
		called, _ := os.ReadFile(calls)
		if starts := strings.Contains(string(called), User); starts != c.starts {
			t.Errorf("%s: slurmd ran su: %t, want %t: %q", c.name, starts, c.starts, called)
		}
	}
	t.Run("LD_PRELOAD", func(t *testing.T) { l.preload(ctx, t, script, strings.TrimSpace(string(host))) })
}

// preloaded is code of a user's: every program that loads it leaves word of itself, and of the machine it ran on.
const preloaded = `#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void word(void)
{
	char exe[4096] = "", boot[64] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
	if (f && fgets(boot, 37, f) && readlink("/proc/self/exe", exe, sizeof exe - 1) > 0) {
		FILE *to = fopen("%s", "a");
		if (to)
			fprintf(to, "%%s %%s\n", boot, exe);
	}
}
`

// preload: of all programs that a job in a VM starts on this host only sbatch, which its user starts, loads what
// LD_PRELOAD names.
func (l *Lab) preload(ctx context.Context, t *testing.T, script, host string) {
	words, code, library := filepath.Join(l.Home(), "words"), filepath.Join(t.TempDir(),
		"p.c"), filepath.Join(l.Home(), "p.so")
	if err := os.WriteFile(code, fmt.Appendf(nil, preloaded, words), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-o", library,
		code).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := l.Command(ctx, User, "sbatch", "--vm=micro", "--parsable", "--output=/dev/null", script)
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+library)
	id, err := run(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Wait(ctx, strings.TrimSpace(id)); err != nil || r.Code != 0 {
		t.Fatalf("%v, %v", r, err)
	}
	text, err := os.ReadFile(words)
	if err != nil {
		t.Fatalf("not even sbatch loaded it: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		boot, exe, _ := strings.Cut(strings.TrimSpace(line), " ")
		if boot == host && filepath.Base(exe) != "sbatch" {
			t.Errorf("%s ran a user's code on this host", exe)
		}
	}
}
