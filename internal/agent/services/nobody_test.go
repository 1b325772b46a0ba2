package services

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/config"
)

// A service on a unix socket does not take VMs for root, and the agent stays what it is.
func TestPeerIsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "service")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for file, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		all := []config.Service{{Name: "db", Port: 1, Network: "unix", Address: path}}
		conn, err := connect(t.Context(), all, 1)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := peer.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil ||
				c.Uid != nobody || c.Gid != nobody {
				t.Errorf("the peer is %+v, %v", c, err)
			}
		})
		peer.Close()
		conn.Close()
	}
	if os.Geteuid() != 0 || os.Getegid() != 0 {
		t.Error("the process is not root any more")
	}
}
