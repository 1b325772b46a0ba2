package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweepTime is longer than an agent takes from one sweep of its host to the next.
const sweepTime = 25 * time.Second

// pretender is an account's process that looks like QEMU.
type pretender struct{ *exec.Cmd }

// pretend starts this program as an account's QEMU of machine name with the UUID id, and waits until it has done what
// how says; see pretendQEMU. wrap is a command in front of it.
func (a *account) pretend(ctx context.Context, name, id string, how []string, wrap ...string) (*pretender, error) {
	qemu := filepath.Join(a.home, "qemu-system-x86_64") // what the process is called
	if _, err := os.Stat(qemu); err != nil {            // it may run
		if err := copySelf(qemu); err != nil {
			return nil, err
		}
	}
	argv := append(wrap, qemu, actFlag, "pretend-qemu", "-name", "guest="+name+",debug-threads=on", "-uuid", id)
	cmd := a.command(ctx, argv[0], append(argv[1:], how...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &pretender{cmd}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		p.end()
		return nil, fmt.Errorf("a pretender says %q: %w", line, err)
	}
	return p, nil
}

func (p *pretender) alive() bool {
	var status unix.WaitStatus
	pid, err := unix.Wait4(p.Process.Pid, &status, unix.WNOHANG, nil)
	return err == nil && pid == 0
}

func (p *pretender) end() {
	p.Process.Kill()
	p.Wait()
}

// pretendQEMU is the role. Behind what QEMU is called with come: nothing; or a path to bind a socket at, then a
// directory to move away and what to link there in its place; or "tmpfs", a directory to mount one on, and the path to
// bind.
func pretendQEMU(args []string) error {
	var bind string
	switch how := args[4:]; {
	case len(how) == 3 && how[0] == "tmpfs":
		if err := unix.Mount("tmpfs", how[1], "tmpfs", 0, ""); err != nil {
			return err
		}
		bind = how[2]
	case len(how) == 3:
		bind = how[0]
	}
	if bind != "" {
		socket, err := net.Listen("unix", bind)
		if err != nil {
			return err
		}
		defer socket.Close() // until the process is ended
	}
	if how := args[4:]; len(how) == 3 && how[0] != "tmpfs" {
		if err := errors.Join(os.Rename(how[1], how[1]+".away"), os.Symlink(how[2], how[1])); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for { // a main that waits for nothing is a deadlock to the runtime
		time.Sleep(time.Hour)
	}
}

// prey is what of root's a pretender wants removed.
type prey struct {
	what, path string
	by         *pretender
}

// pretenders has an account pretend to be orphaned machines whose sockets lie, says the text that the kernel keeps,
// below the agent's run directory: really at a file, a directory and a living socket of root's. Root removes nothing,
// and ends none of them.
func pretenders(ctx context.Context, s *site) (err error) {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	acc, err := s.account(1)
	if err != nil {
		return err
	}
	run, victims := filepath.Join(l.Dir, "run"), s.path("victims")
	if err := errors.Join(os.MkdirAll(filepath.Join(victims, "directory"), 0o755),
		os.WriteFile(filepath.Join(victims, "file"), []byte("root's\n"), 0o600)); err != nil {
		return err
	}
	var hunted []prey
	defer func() {
		for _, p := range hunted {
			p.by.end()
		}
	}()
	up := run + strings.Repeat("/..", strings.Count(run, "/"))
	for i, name := range []string{"file", "directory"} {
		dir := filepath.Join(acc.home, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, int(acc.uid), int(acc.uid))); err != nil {
			return err
		}
		id := fmt.Sprintf("11111111-1111-4111-8111-11111111111%d", i)
		by, err := acc.pretend(ctx, "grange-dead"+name, id, []string{up + filepath.Join(dir, name), dir, victims})
		if err != nil {
			return err
		}
		hunted = append(hunted, prey{"root's " + name, filepath.Join(victims, name), by})
	}
	if acc.command(ctx, "unshare", "--user", "--map-root-user", "--mount", "true").Run() == nil {
		socket := filepath.Join(run, "living.sock")
		living, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		defer living.Close()
		by, err := acc.pretend(ctx, "grange-deadbeef", "11111111-1111-4111-8111-111111111119",
			[]string{"tmpfs", run, socket}, "unshare", "--user", "--map-root-user", "--mount")
		if err != nil {
			return err
		}
		hunted = append(hunted, prey{"a socket that root listens on, by a pretender in namespaces of its own,",
			socket, by})
	}
	return watchPrey(ctx, hunted)
}

func watchPrey(ctx context.Context, hunted []prey) error {
	for limit := time.Now().Add(sweepTime); time.Now().Before(limit); {
		var found []error
		for _, p := range hunted {
			if _, err := os.Lstat(p.path); err != nil {
				found = append(found, breach("%s was removed: %v", p.what, err))
			} else if !p.by.alive() {
				found = append(found, breach("a process of an ordinary account was ended in place of QEMU"))
			}
		}
		if len(found) > 0 {
			return errors.Join(found...)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
