package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// Account holder has subordinate IDs, as `useradd` gives them to each account, and is a student.
const (
	holderNumber     = 60
	holderName       = "holder"
	firstSubordinate = 700_000
	subordinates     = 65_536
	studentsGroup    = firstAccount + 90
)

// holder is the account, on a host with files of its own below /etc.
type holder struct {
	*account
	etc string
}

// holder makes that account. The host that is attacked runs within etc as well; see ownEtc.
func (s *site) holder(ctx context.Context) (*holder, error) {
	if _, err := exec.LookPath("newuidmap"); err != nil {
		return nil, fmt.Errorf("uidmap is missing: %w", err)
	}
	a, err := s.account(holderNumber)
	if err != nil {
		return nil, err
	}
	h := &holder{a, s.path("etc")}
	if _, err := os.Stat(h.etc); err == nil {
		return h, nil
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", "/etc", h.etc).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy of /etc: %w: %s", err, out)
	}
	var errs []error
	for name, line := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%[2]d::%s:/bin/sh\n", holderName, a.uid, a.home),
		"group":  fmt.Sprintf("%s:x:%d:\nstudents:x:%d:%[1]s\n", holderName, a.uid, studentsGroup),
		"subuid": fmt.Sprintf("%s:%d:%d\n", holderName, firstSubordinate, subordinates),
		"subgid": fmt.Sprintf("%s:%d:%d\n", holderName, firstSubordinate, subordinates),
	} {
		path := filepath.Join(h.etc, name)
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		errs = append(errs, os.WriteFile(path, append(text, line...), 0o644))
	}
	return h, errors.Join(errs...)
}

// ownEtc runs a command where /etc is another directory.
func ownEtc(dir string) []string {
	return []string{"/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c",
		`mount --bind "$0" /etc && exec "$@"`, dir}
}

// host starts a host on which the account is known.
func (h *holder) host(ctx context.Context, s *site, o lab.Options, within ...string) (*lab.Lab, error) {
	o.Within = append(ownEtc(h.etc), within...)
	return s.start(ctx, o)
}

// login runs a command as the account, with all its groups, on the account's host.
func (h *holder) login(ctx context.Context, l *lab.Lab, argv ...string) *exec.Cmd {
	words := append(ownEtc(h.etc), "/usr/bin/setpriv", fmt.Sprintf("--reuid=%d", h.uid),
		fmt.Sprintf("--regid=%d", h.uid), "--init-groups", "--")
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], argv...)...)
	cmd.Dir = h.home
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // which reaches the namespace
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = []string{"HOME=" + h.home, "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	if l != nil {
		cmd.Env = append(cmd.Env, "GRANGE_SOCKET="+l.Socket)
	}
	return cmd
}

// as runs a command in a user namespace of the account, under its subordinate ID number n, from 1 on, and without
// groups. 0 is the account's own ID.
func (h *holder) as(ctx context.Context, l *lab.Lab, n int, argv ...string) *exec.Cmd {
	return h.login(ctx, l, append([]string{h.self, actFlag, "namespace", h.self, "id", strconv.Itoa(n)}, argv...)...)
}

// byFile runs a command in the user namespace of the host, under subordinate ID number n, by a file that has it.
func (h *holder) byFile(ctx context.Context, l *lab.Lab, n int, argv ...string) (*exec.Cmd, error) {
	path := filepath.Join(h.home, fmt.Sprint("file-", n))
	if _, err := os.Stat(path); err != nil {
		give := h.login(ctx, nil, h.self, actFlag, "namespace", h.self, "give", strconv.Itoa(n), path)
		if out, err := give.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("a file with the set-user-ID bit: %w: %s", err, out)
		}
	}
	return h.login(ctx, l, append([]string{path, actFlag, "become"}, argv...)...), nil
}

// namespace is a role: play another one in a new user namespace of the account, with all IDs that it has.
func namespace(args []string) error {
	program, role := args[0], args[1]
	cmd := exec.Command("unshare", append([]string{"--user", "--keep-caps", "--", program, actFlag, "mapped", role},
		args[2:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	mapped, told, err := os.Pipe()
	if err != nil {
		return err
	}
	there, tells, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{mapped, tells}
	if err := cmd.Start(); err != nil {
		return err
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() { <-ends; cmd.Process.Signal(syscall.SIGTERM); time.Sleep(time.Second); cmd.Process.Kill() }()
	mapped.Close()
	tells.Close()
	if _, err := bufio.NewReader(there).ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("no user namespace: %w", err), cmd.Wait())
	}
	for program, own := range map[string]int{"newuidmap": os.Getuid(), "newgidmap": os.Getgid()} {
		out, err := exec.Command(program, strconv.Itoa(cmd.Process.Pid), "0", strconv.Itoa(own), "1", "1",
			strconv.Itoa(firstSubordinate), strconv.Itoa(subordinates)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", program, err, out)
		}
	}
	fmt.Fprintln(told, "mapped")
	told.Close()
	err = cmd.Wait()
	if ended := new(exec.ExitError); errors.As(err, &ended) && ended.Exited() {
		os.Exit(ended.ExitCode())
	}
	return err
}

// mapped is a role: go on in a user namespace when it has its maps.
func mapped(args []string) error {
	const in, out = 3, 4
	tells := os.NewFile(out, "out")
	fmt.Fprintln(tells, "there")
	tells.Close()
	waits := os.NewFile(in, "in")
	if _, err := bufio.NewReader(waits).ReadString('\n'); err != nil {
		return err
	}
	waits.Close()
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if args[0] == "give" {
		return give(args[2], n)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if n != 0 {
		if err := errors.Join(syscall.Setresgid(n, n, n), syscall.Setresuid(n, n, n)); err != nil {
			return err
		}
	}
	return replaceBy(args[2:])
}

// give makes a copy of this program that runs as a subordinate user and group, whoever starts it.
func give(path string, n int) error {
	if err := copySelf(path); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, n, n), syscall.Chmod(path, 0o6755))
}

// become is a role: take the IDs of the file for good, and run a command.
func become(args []string) error {
	uid, gid := syscall.Geteuid(), syscall.Getegid()
	if uid == syscall.Getuid() {
		return errors.New("the file's user ID does not count here")
	}
	if err := errors.Join(syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return err
	}
	return replaceBy(args)
}

func replaceBy(argv []string) error {
	path := argv[0]
	if !strings.Contains(path, "/") {
		var err error
		if path, err = exec.LookPath(path); err != nil {
			return err
		}
	}
	return syscall.Exec(path, argv, os.Environ())
}
