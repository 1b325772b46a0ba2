package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// JupyterHub's users, and whom its proxy runs as: accounts that the name service has while this program runs.
const (
	julia = 61203
	jack  = 61204
	proxy = 61205
)

var accounts = map[string]int{"julia": julia, "jack": jack, "jhproxy": proxy}

// namesVariable is the directory of the accounts, for the program that has them.
const namesVariable = "GRANGE_TEST_NAMES"

// homeOf is the home of an account.
func homeOf(name string) string { return filepath.Join(os.Getenv(namesVariable), "home", name) }

// withAccounts runs this program again where the name service has the accounts, and returns its exit status.
func withAccounts(ctx context.Context) (status int, err error) {
	if _, err := os.Stat("/var/lib/extrausers"); err != nil {
		return 1, fmt.Errorf("libnss-extrausers is missing: %w", err)
	}
	dir, err := os.MkdirTemp("", "grange-names")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := writeAccounts(dir); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	words := []string{"--mount", "--propagation", "slave", "/bin/sh", "-c",
		`mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf && mount --bind "$0" /var/lib/extrausers && exec "$@"`, dir,
		self}
	cmd := exec.CommandContext(ctx, "/usr/bin/unshare", append(words, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), namesVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	if ended := new(exec.ExitError); errors.As(err, &ended) {
		return ended.ExitCode(), nil
	}
	return 0, err
}

func writeAccounts(dir string) error {
	passwd, group := "", ""
	for name, id := range accounts {
		home := filepath.Join(dir, "home", name)
		passwd += fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", name, id, id, home)
		group += fmt.Sprintf("%s:x:%d:\n", name, id)
		if err := errors.Join(os.MkdirAll(home, 0o755), os.Chown(home, id, id)); err != nil {
			return err
		}
	}
	errs := []error{os.Chmod(dir, 0o755)}
	for name, text := range map[string]string{"passwd": passwd, "group": group, "shadow": "",
		"nsswitch.conf": "passwd: files extrausers\ngroup: files extrausers\nhosts: files dns\n"} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}
