package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// bindOfProc has a guest write into the memory of the wrapper that answers its file requests, at the address where a
// static Go program starts. Those four bytes are there already.
func bindOfProc(ctx context.Context, s *site) error {
	out, err := s.guestOf(ctx, 1, `
		p=$(readlink /x/self) || { echo no /x/self; exit 0; }
		printf '\177ELF' | dd of=/x/$p/mem bs=4 seek=1048576 conv=notrunc && echo WROTE $p`, "--bind", "/proc:/x")
	switch {
	case strings.Contains(out, "WROTE"):
		return breach("the guest wrote into the memory of grange exec: %s", out)
	case strings.Contains(out, "no /x/self"), strings.Contains(out, "[bind-refused]"):
		return nil
	}
	return fmt.Errorf("%w: %s", err, out)
}

// bindOfAll looks for the host's processes and control groups below a bind of all its files.
func bindOfAll(ctx context.Context, s *site) error {
	a, err := s.account(1)
	if err != nil {
		return err
	}
	sleeper := a.command(ctx, "sleep", "600")
	sleeper.Env = append(sleeper.Env, "TOKEN=of-the-host")
	if err := sleeper.Start(); err != nil {
		return err
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	out, err := s.guestOf(ctx, 1, fmt.Sprintf(`
		set -- /h/proc/%d /h/proc/self/status /h/sys/kernel /h/dev/null
		for f; do [ -e $f ] && echo FOUND $f; done
		head -c 100 /h/etc/passwd >/dev/null && ls -la /h /h/proc >/dev/null && find /h -maxdepth 1 >/dev/null && echo WALKED`, sleeper.Process.Pid),
		"--bind", "/:/h:ro")
	switch {
	case strings.Contains(out, "FOUND"):
		return breach("%s", out)
	case !strings.Contains(out, "WALKED"):
		return fmt.Errorf("the host's other files are not there: %w: %s", err, out)
	}
	return nil
}

// guestOf runs a script in a VM of an ordinary account.
func (s *site) guestOf(ctx context.Context, n int, script string, flags ...string) (string, error) {
	l, err := s.lab(ctx)
	if err != nil {
		return "", err
	}
	a, err := s.account(n)
	if err != nil {
		return "", err
	}
	args := append([]string{"--socket", l.Socket, "exec"}, flags...)
	return said(a.command(ctx, filepath.Join(s.programs, "grange"), append(args, "--", "sh", "-c", script)...))
}

// said runs a command and returns all that it printed. Its error is never nil: what it printed counts.
func said(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = errors.New("it ended with 0")
	}
	return string(out), err
}

// rootsBind has the guest of a root that bound a directory leave there what gives its account root's rights.
func rootsBind(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	dir := s.path("srv")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	armed := filepath.Join(dir, "armed") // the host's own
	if err := os.WriteFile(armed, []byte("#!/bin/true\n"), 0o755); err != nil {
		return err
	}
	if err := syscall.Chmod(armed, 0o4755); err != nil {
		return err
	}
	out, err := said(l.Exec(ctx, "--bind", dir+":/srv", "--", "sh", "-c", `
		cp /bin/sh /srv/sh && chmod 4755 /srv/sh
		echo changed >>/srv/armed
		mknod /srv/device c 1 3
		echo DONE`))
	if !strings.Contains(out, "DONE") {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, name := range []string{"sh", "armed"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			return breach("%s is %v on the host, written by the guest", name, info.Mode())
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "device")); err == nil && info.Mode()&os.ModeDevice != 0 {
		return breach("the guest made a device on the host: %v", info.Mode())
	}
	return nil
}
