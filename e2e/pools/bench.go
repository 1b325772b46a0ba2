package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/pty"
)

// Users that no account of the host has.
const (
	alice = 61201
	bob   = 61202
)

// config has a pool for each limit: a session meets one of them.
// A name may publish ports to bob, and one to whatever connects from an address.
const config = `
[pools.default]
about = "for everybody"
image = "micro"
home = true
max_cpus = 1
max_memory = "1G"
per_user = 1
[pools.idle]
image = "micro"
idle = "20s"
[pools.total]
image = "micro"
total = "60s"
[pools.attended]
image = "micro"
detach = false
[pools.theirs]
image = "micro"
users = ["0"]
[publish.friends]
accounts = ["61202"]
[publish.hosts]
hosts = ["127.0.0.1"]
`

// bench is the host, alice's home, and the session that the first cases share.
type bench struct {
	host *lab.Lab
	home string
	main *terminal
	all  []*terminal
	vms  int
}

func newBench(host *lab.Lab) (*bench, error) {
	home, err := os.MkdirTemp("", "grange-pools")
	if err != nil {
		return nil, err
	}
	b := &bench{host: host, home: home}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(b.program(), self, 0o755), os.Chmod(b.program(), 0o755))
	}
	return b, errors.Join(err, os.Chown(home, alice, alice), os.Chmod(home, 0o755))
}

// program is this one, where a VM of alice sees it.
func (b *bench) program() string { return filepath.Join(b.home, "pools") }

func (b *bench) close() {
	for _, t := range b.all {
		t.cmd.Process.Kill()
		<-t.over
	}
	for _, user := range []int{alice, bob} {
		out, _ := b.grange(context.Background(), user, "shell", "list")
		for line := range strings.Lines(out) {
			if id, _, ok := strings.Cut(line, " "); ok && len(id) == 8 {
				b.grange(context.Background(), user, "shell", "end", id)
			}
		}
	}
	os.RemoveAll(b.home)
}

// command is a command of the command line, as a user.
func (b *bench) command(ctx context.Context, user int, args ...string) *exec.Cmd {
	cmd := b.host.Grange(ctx, args...)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "HOME="+b.home, "SHELL=/bin/bash", "TERM=dumb", "PS1=", "ENV=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	return cmd
}

func (b *bench) grange(ctx context.Context, user int, args ...string) (string, error) {
	out, err := b.command(ctx, user, args...).CombinedOutput()
	return string(out), err
}

// terminal is one that a command of the command line runs in.
type terminal struct {
	file *os.File
	cmd  *exec.Cmd
	over chan struct{}

	mu  sync.Mutex
	out []byte
	at  int // up to where expect has read
}

// open starts a command in a terminal of its own.
func (b *bench) open(ctx context.Context, user int, args ...string) (*terminal, error) {
	ours, child, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	if err := child.Chown(user, user); err != nil {
		return nil, err
	}
	if err := pty.Resize(ours, 30, 90); err != nil {
		return nil, err
	}
	t := &terminal{file: ours, cmd: b.command(context.WithoutCancel(ctx), user, args...), over: make(chan struct{})}
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = child, child, child
	t.cmd.SysProcAttr.Setsid, t.cmd.SysProcAttr.Setctty = true, true
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	b.all = append(b.all, t)
	go t.read()
	go func() { t.cmd.Wait(); close(t.over) }()
	return t, nil
}

func (t *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := t.file.Read(buf)
		t.mu.Lock()
		t.out = append(t.out, buf[:n]...)
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *terminal) line(text string) error {
	_, err := t.file.WriteString(text + "\r")
	return err
}

// expect waits for a text behind what was waited for before.
func (t *terminal) expect(ctx context.Context, text string) error {
	for {
		t.mu.Lock()
		i := strings.Index(string(t.out[t.at:]), text)
		if i >= 0 {
			t.at += i + len(text)
		}
		t.mu.Unlock()
		if i >= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the terminal never showed %q, but: %s", text, t.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (t *terminal) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.out[max(0, len(t.out)-2000):])
}

// ends waits for the command to end with a status.
func (t *terminal) ends(ctx context.Context, status int) error {
	select {
	case <-t.over:
	case <-ctx.Done():
		return fmt.Errorf("the command does not end; the terminal shows: %s", t.tail())
	}
	if got := t.cmd.ProcessState.ExitCode(); got != status {
		return fmt.Errorf("the command ended with status %d, and not %d; the terminal shows: %s", got, status, t.tail())
	}
	return nil
}

// does types lines and waits for texts in turn.
func (t *terminal) does(ctx context.Context, words ...string) error {
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] != "" {
			if err := t.line(words[i]); err != nil {
				return err
			}
		}
		if err := t.expect(ctx, words[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// noVMs waits until no VM is left.
func (b *bench) noVMs(ctx context.Context) error {
	for {
		vms, err := b.host.Client.VMs(ctx)
		if err == nil && len(vms) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("VMs are left: %v, %v", vms, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
