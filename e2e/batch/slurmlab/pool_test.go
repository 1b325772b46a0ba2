package slurmlab

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/pty"
)

// poolConfig has a pool whose VMs Slurm gives.
const poolConfig = `
[pools.work]
image = "micro"
idle = "1h"
batch = "slurm"
options = ["--time=30"]
`

// seat is a terminal in which a user runs something.
type seat struct {
	file *os.File
	done chan error

	mu   sync.Mutex
	text strings.Builder
	read int
}

func (l *Lab) sit(ctx context.Context, t *testing.T, name string, args ...string) *seat {
	t.Helper()
	ours, child, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if err := child.Chown(nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := pty.Resize(ours, 31, 97); err != nil {
		t.Fatal(err)
	}
	cmd := l.Command(ctx, User, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = child, child, child
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &seat{file: ours, done: make(chan error, 1)}
	go func() { s.done <- cmd.Wait() }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill(); ours.Close() })
	return s
}

// types types a line and waits for what comes of it.
func (s *seat) types(t *testing.T, line, want string) {
	t.Helper()
	if _, err := s.file.WriteString(line + "\r"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		all := s.text.String()
		i := strings.Index(all[s.read:], want)
		if i >= 0 {
			s.read += i + len(want)
		}
		s.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %q the terminal never showed %q: %s", line, want, all)
		}
	}
}

// terminals: srun --pty, and a session in a VM that Slurm gives, which is left and gone on with.
func (l *Lab) terminals(ctx context.Context, t *testing.T, host string) {
	const where = `read b < /proc/sys/kernel/random/boot_id; echo "boot:$b" at $(stty size); echo pool:$GRANGE_POOL:`
	notHost := func(s *seat) {
		t.Helper()
		if s.mu.Lock(); strings.Contains(s.text.String(), "boot:"+strings.TrimSpace(host)) {
			t.Error("THE SHELL RUNS on the host")
		}
		s.mu.Unlock()
	}
	t.Run("srun --pty", func(t *testing.T) {
		s := l.sit(ctx, t, "srun", "--pty", "--vm=micro", "bash")
		s.types(t, where, "at 31 97")
		notHost(s)
		s.types(t, "exit 5", "exit")
		if err := <-s.done; err == nil || !strings.Contains(err.Error(), "exit status 5") {
			t.Error(err)
		}
	})
	t.Run("a session", func(t *testing.T) {
		grange := func(args ...string) []string { return append([]string{"--socket", l.host.Socket, "shell"}, args...) }
		s := l.sit(ctx, t, l.path("bin/grange"), grange("--", "bash")...)
		s.types(t, where, "at 31 97")
		s.types(t, "kept=yes", "pool::")
		notHost(s)
		out, err := l.Slurm(ctx, User, "squeue", "--noheader", "--Format=Name:30,State:30,TimeLimit:30")
		if !strings.Contains(out, "grange-shell") || !strings.Contains(out, "RUNNING") || !strings.Contains(out, "30:00") {
			t.Errorf("Slurm has %q, %v", out, err)
		}
		if vms, err := l.host.Client.VMs(ctx); err != nil || len(vms) != 1 || vms[0].Pool != "work" || vms[0].Batch == "" {
			t.Errorf("the VMs are %+v, %v", vms, err)
		}
		s.types(t, "\r~d", "detached")
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		s = l.sit(ctx, t, l.path("bin/grange"), grange("attach")...)
		s.types(t, "echo kept: $kept", "kept: yes")
		s.types(t, "exit 6", "exit")
		if err := <-s.done; err == nil || !strings.Contains(err.Error(), "exit status 6") {
			t.Error(err)
		}
	})
}
