package machine

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// displayed is a machine whose directory for its display is there.
func displayed(t *testing.T) *Machine {
	t.Helper()
	m := &Machine{Sockets: t.TempDir(), User: User{UID: os.Getuid(), GID: os.Getgid()}}
	m.Applied.PID = os.Getpid()
	if err := m.MakeDisplay(); err != nil {
		t.Fatal(err)
	}
	return m
}

func listenAt(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// TestOpenDisplay: whoever asks for a display is connected to the VM's own QEMU and to nobody else, wherever the path
// leads.
func TestOpenDisplay(t *testing.T) {
	m := displayed(t)
	if _, err := m.OpenDisplay(t.Context()); !farm.IsCode(err, farm.CodeNoDisplay) {
		t.Errorf("no display: %v", err)
	}
	other := filepath.Join(t.TempDir(), "libvirt-sock")
	listenAt(t, other)
	if err := os.Symlink(other, m.DisplaySocket()); err != nil {
		t.Fatal(err)
	}
	m.Applied.PID = os.Getppid() // what is behind the link is not served by QEMU
	if _, err := m.OpenDisplay(t.Context()); !farm.IsCode(err, farm.CodeNoDisplay) {
		t.Errorf("a link to another's socket: %v", err)
	}
	if err := os.Remove(m.DisplaySocket()); err != nil {
		t.Fatal(err)
	}
	listenAt(t, m.DisplaySocket())
	m.Applied.PID = os.Getpid()
	conn, err := m.OpenDisplay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestCloseDisplay: from the machine's start on nobody but the agent enters the directory.
func TestCloseDisplay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a directory away")
	}
	m := &Machine{Sockets: t.TempDir(), User: User{UID: 65534, GID: 65534}}
	owner := func() (uid int) {
		info, err := os.Stat(filepath.Dir(m.DisplaySocket()))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%v, %v", info, err)
		}
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	if err := m.MakeDisplay(); err != nil || owner() != 65534 {
		t.Errorf("made: %v, of user %d", err, owner())
	}
	if err := closeDisplay(hyper.Machine{Display: m.DisplaySocket()}); err != nil || owner() != 0 {
		t.Errorf("closed: %v, of user %d", err, owner())
	}
	if err := closeDisplay(hyper.Machine{}); err != nil {
		t.Errorf("none: %v", err)
	}
}
