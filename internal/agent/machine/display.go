package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// QEMU itself makes the socket of a display, where libvirt makes those of consoles and hands them over. So it has a
// directory for that, until it serves the display.

// DisplaySocket is where QEMU serves the machine's display.
func (m *Machine) DisplaySocket() string { return m.Path("display/vnc") }

// MakeDisplay makes the directory of the display's socket for QEMU.
func (m *Machine) MakeDisplay() error {
	dir := filepath.Dir(m.DisplaySocket())
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Lchown(dir, m.User.UID, m.User.GID)); err != nil {
		return fmt.Errorf("directory for the display's socket: %w", err)
	}
	return nil
}

// closeDisplay takes that directory back, if there is one: VMs may share their user, and none may see what another one
// shows.
func closeDisplay(spec hyper.Machine) error {
	if spec.Display == "" {
		return nil
	}
	if err := os.Lchown(filepath.Dir(spec.Display), os.Getuid(), os.Getgid()); err != nil {
		return fmt.Errorf("directory of the display's socket: %w", err)
	}
	return nil
}

// displayTimeout is how long QEMU may take to let somebody in: one that does not answer has its hands full.
const displayTimeout = 10 * time.Second

// OpenDisplay connects to the machine's display. The caller closes it.
func (m *Machine) OpenDisplay(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: displayTimeout}
	conn, err := dialer.DialContext(ctx, "unix", m.DisplaySocket())
	if err == nil {
		if err = servedBy(conn.(*net.UnixConn), m.Applied.PID); err != nil {
			conn.Close()
		}
	}
	if err != nil {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoDisplay, Err: err,
			Message: "the VM's display does not answer its host",
			Hint:    "use its console; a VM that was started by an earlier release has a display when it is started again"}
	}
	return conn, nil
}

// servedBy refuses a socket at which another process listens: while QEMU had the directory it could put a link to any
// socket of this host there, which whoever asked for the display would then be connected to as root.
func servedBy(conn *net.UnixConn, pid int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if int(peer.Pid) != pid {
		return fmt.Errorf("process %d serves it, and not the VM's QEMU, which is %d", peer.Pid, pid)
	}
	return nil
}
