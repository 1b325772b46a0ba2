package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// account is an ordinary account of the host: no groups, no name that anything was granted to.
type account struct {
	uid  uint32
	home string // its own, 0755
	self string // this program, where the account can execute it
}

// firstAccount is the uid of account 0: no account of Debian's, and none of a test machine's.
const firstAccount = 61000

// account returns ordinary account n, with its home.
func (s *site) account(n int) (*account, error) {
	a := &account{uid: uint32(firstAccount + n), home: s.path(fmt.Sprintf("home-%d", n)), self: s.path("self")}
	if err := os.MkdirAll(a.home, 0o755); err != nil {
		return nil, err
	}
	return a, os.Chown(a.home, int(a.uid), int(a.uid))
}

// command is a command that the account runs in its home.
func (a *account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = a.home
	cmd.Env = []string{"HOME=" + a.home, "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.uid}}
	return cmd
}

// actFlag makes this program play a role; its next arguments are the role and the role's own.
const actFlag = "-act"

// act is this program in one of its roles, as the account. A role does what no tool of a plain Debian does.
func (a *account) act(ctx context.Context, role string, args ...string) *exec.Cmd {
	return a.command(ctx, a.self, append([]string{actFlag, role}, args...)...)
}

// begin starts a command, and waits for its first line, which it returns with its end.
func begin(cmd *exec.Cmd) (line string, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return bufio.NewReader(out).ReadString('\n')
}

func act(role string, args []string) {
	do, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "security: no role %q\n", role)
		os.Exit(2)
	}
	if err := do(args); err != nil {
		fmt.Fprintf(os.Stderr, "security: %s: %v\n", role, err)
		os.Exit(1)
	}
}

// copySelf copies this program to where every account can execute it: `go run` keeps it below a directory of root's.
func copySelf(to string) error {
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(to), text, 0o755)
}
