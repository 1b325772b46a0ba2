package dhcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/procstat"
	"github.com/grange-project/grange/internal/program"
)

// process is one that was started here, maybe by an agent before this one.
type process struct {
	PID     int
	Started uint64 // in the kernel's ticks: tells it from a later one of the number
}

// of returns the process that has a number now; false: there is none, or it has ended and nobody has waited for it.
func of(pid int) (process, bool) {
	started, err := procstat.Started(pid)
	return process{pid, started}, err == nil
}

func (p process) alive() bool {
	now, ok := of(p.PID)
	return ok && p.PID != 0 && now == p
}

// signal sends a signal to the very process, and for SIGKILL waits until it has ended. One that has ended is no error.
func (p process) signal(s unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // there is none
	}
	defer unix.Close(fd)
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("signal %v for dnsmasq (process %d): %w", s, p.PID, err)
	}
	if s != unix.SIGKILL {
		return nil
	}
	for deadline := time.Now().Add(endLimit); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return err
		}
	}
	return fmt.Errorf("dnsmasq (process %d) was killed and is still there after %v", p.PID, endLimit)
}

const endLimit = 5 * time.Second

// account is whom dnsmasq runs as: its package makes it.
const account = "dnsmasq"

// identity is the account's user and group.
func identity(ctx context.Context) (names.User, error) {
	u, err := names.Host().Named(ctx, account)
	if err == nil && u.UID == 0 {
		err = fmt.Errorf("the user %s is root", account)
	}
	return u, err
}

// held is a process that is there, in a network namespace of its own, and becomes dnsmasq when it is let go. Without
// that it ends with the agent, and its namespace with it.
type held struct {
	process
	gate *os.File
	wait func() error
}

// hold starts one, as the account, with the rights in its network that dnsmasq needs: for its ports, and to answer
// guests that have no address yet. What it prints goes to a file in dir.
func hold(dir string, as names.User) (held, error) {
	path, err := program.Find("dnsmasq")
	if err != nil {
		return held{}, err
	}
	errs, err := os.OpenFile(filepath.Join(dir, errorsFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return held{}, err
	}
	defer errs.Close()
	blocked, gate, err := os.Pipe()
	if err != nil {
		return held{}, err
	}
	defer blocked.Close()
	cmd := exec.Command("/bin/sh", "-c", `read -r go && exec "$@" </dev/null`, "dhcp", path, "--keep-in-foreground",
		"--conf-file="+filepath.Join(dir, confFile))
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + strings.Join(program.Dirs, ":"), "LC_ALL=C", "TZ=UTC"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = blocked, errs, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Setsid: true,
		Credential:  &syscall.Credential{Uid: as.UID, Gid: as.GID},
		AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_NET_ADMIN}}
	if err := cmd.Start(); err != nil {
		return held{}, errors.Join(err, gate.Close())
	}
	h := held{gate: gate, wait: cmd.Wait}
	h.process, _ = of(cmd.Process.Pid)
	return h, nil
}

// letGo has it become dnsmasq.
func (h held) letGo() error {
	_, err := h.gate.Write([]byte("go\n"))
	return errors.Join(err, h.gate.Close())
}

// end ends it, whatever it has become.
func (h held) end() {
	h.gate.Close()
	h.signal(unix.SIGKILL)
}

// listens reports whether a process's network namespace has a UDP socket on a port. The kernel's table of a family has
// the local address and port, in hexadecimal, in its second column.
func (p process) listens(family string, port int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.PID, family))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}
