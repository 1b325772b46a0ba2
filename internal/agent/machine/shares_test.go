package machine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/procstat"
)

// served is a machine with a process in the place of virtiofsd.
func served(t *testing.T) (*Machine, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	m := &Machine{Sockets: t.TempDir()}
	started, err := procstat.Started(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.keepShares([]Share{{Tag: "bind0", PID: cmd.Process.Pid, Started: started}}); err != nil {
		t.Fatal(err)
	}
	m.Applied.PID = os.Getpid() // that goes on
	m.Applied.Started, _ = procstat.Started(os.Getpid())
	return m, cmd
}

// TestShareLost: the next agent learns of the end of what serves a machine, with its last words.
func TestShareLost(t *testing.T) {
	m, cmd := served(t)
	next := &Machine{Sockets: m.Sockets, Applied: m.Applied}
	if err := next.ReadShares(); err != nil || len(next.shares) != 1 {
		t.Fatal(next.shares, err)
	}
	if err := os.WriteFile(next.wordsOf(next.shares[0]), []byte("last\x1b words"), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 1)
	go next.watchShare(t.Context(), next.shares[0], func(err error) { lost <- err })
	cmd.Process.Kill()
	err := <-lost
	if !farm.IsCode(err, CodeBindLost) || !strings.Contains(err.Error(), "words") ||
		strings.Contains(err.Error(), "\x1b") {
		t.Error(err)
	}
}

// TestShareEndsWithMachine: that is no loss.
func TestShareEndsWithMachine(t *testing.T) {
	m, cmd := served(t)
	m.Applied.Started++ // its QEMU has gone
	cmd.Process.Kill()
	m.watchShare(t.Context(), m.shares[0], func(err error) { t.Error(err) })
}

// TestWatchIsGivenUp: an agent that stops leaves what serves the machine alone.
func TestWatchIsGivenUp(t *testing.T) {
	m, _ := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		m.watchShare(ctx, m.shares[0], func(err error) { t.Error(err) })
		close(done)
	}()
	cancel()
	<-done
	if _, err := procstat.Started(m.shares[0].PID); err != nil {
		t.Error(err)
	}
}

// TestEndShares: stopped or not, it ends; a later process with its number does not.
func TestEndShares(t *testing.T) {
	m, cmd := served(t)
	other, later := m.shares[0], &Machine{Sockets: t.TempDir()}
	other.Started++
	if err := later.keepShares([]Share{other}); err != nil {
		t.Fatal(err)
	}
	if err := EndShares(later.Sockets); err != nil {
		t.Error(err)
	}
	if _, err := procstat.Started(cmd.Process.Pid); err != nil {
		t.Error("another process was ended")
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	if err := EndShares(m.Sockets); err != nil {
		t.Error(err)
	}
	if _, err := procstat.Started(cmd.Process.Pid); err == nil {
		t.Error("it goes on")
	}
	if err := EndShares(t.TempDir()); err != nil { // none was ever there
		t.Error(err)
	}
}

// TestShareWithdrawn: a directory that is refused leaves nothing behind, and the next one can be served.
func TestShareWithdrawn(t *testing.T) {
	m := &Machine{Sockets: t.TempDir()}
	m.User.UID, m.User.GID = os.Getuid(), os.Getgid()
	for range 2 {
		_, err := m.Serve(t.Context(), By{Program: "/usr/bin/virtiofsd"}, confine.Directory{}, ShareFor{}) // of root
		if !farm.IsCode(err, farm.CodeNoGateway) {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(m.Sockets, "bind*"))
	if all, read := readShares(m.Sockets); len(left) > 0 || len(all) > 0 || len(m.shares) > 0 ||
		errors.Join(err, read) != nil {
		t.Errorf("%v is left, and shares %v, %v: %v, %v", left, all, m.shares, err, read)
	}
}
