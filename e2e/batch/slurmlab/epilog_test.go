package slurmlab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestTaskEpilogs: Slurm runs the programs of TaskEpilog, `srun --task-epilog` and `srun --task-prolog` on the host, as
// the user. Around a task in a VM they must not run; around one on the host they do.
func TestTaskEpilogs(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	l.taskEpilogs(ctx, t)
}

func (l *Lab) taskEpilogs(ctx context.Context, t *testing.T) {
	program := func(name string) (path, marker string) {
		path, marker = l.path("home/"+name), l.path("home/"+name+"-ran")
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ntouch %s\n", marker), 0o755); err != nil {
			t.Fatal(err)
		}
		return path, marker
	}
	site, siteRan := program("site")
	users, usersRan := program("users")
	before, beforeRan := program("before")
	if err := l.Reconfigure(ctx, "TaskEpilog="+site); err != nil {
		t.Fatal(err)
	}
	ran := func(what string, want bool) {
		t.Helper()
		for _, marker := range []string{siteRan, usersRan, beforeRan} {
			if exists(marker) != want {
				t.Errorf("%s: %s is there: %v, want %v", what, marker, !want, want)
			}
			os.Remove(marker)
		}
	}
	srun := func(code int, args ...string) string {
		t.Helper()
		cmd := l.Command(ctx, User, "srun", append([]string{"--task-epilog=" + users, "--task-prolog=" + before},
			args...)...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("srun %q ended with %v, want %d:\n%s", args, cmd.ProcessState, code, out)
		}
		return string(out)
	}
	l.eventually(ctx, t, "slurmd has read its new configuration", func() bool {
		srun(0, "--no-vm", "true")
		return exists(siteRan)
	})
	os.Remove(siteRan)
	os.Remove(usersRan)
	os.Remove(beforeRan)
	srun(3, "--no-vm", "sh", "-c", "exit 3")
	ran("on the host", true)
	srun(4, "--vm=micro", "sh", "-c", "exit 4")
	ran("in a VM", false)
	// The tasks of a step that are still there when the first one ends are none the worse for it: they may start
	// processes.
	out := srun(0, "-n2", "--overcommit", "--vm=micro", "sh", "-c",
		"[ $SLURM_PROCID = 0 ] || { sleep 2; echo other $(echo fine); }")
	if !strings.Contains(out, "other fine") {
		t.Errorf("the second task: %s", out)
	}
	ran("two tasks in a VM", false)
	l.o.Plugstack = "allow_metal=no"
	if err := l.Reconfigure(ctx, "TaskEpilog="+site); err != nil {
		t.Fatal(err)
	}
	srun(197, "--no-vm", "true")
	ran("a task that was refused", false)
	if wrong := l.Sound(ctx); len(wrong) > 0 {
		t.Error(wrong)
	}
}
