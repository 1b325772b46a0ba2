package api

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// fullSocket listens on a socket whose queue is full: the kernel lets one more connection wait than the backlog says.
func fullSocket(t *testing.T) (path string, accept func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	if _, err := net.Dial("unix", path); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("the queue is not full: %v", err)
	}
	return path, func() {
		conn, _, err := syscall.Accept(fd)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { syscall.Close(conn) })
	}
}

// TestFullQueue: a caller waits for its place in the queue, within its limits.
func TestFullQueue(t *testing.T) {
	path, accept := fullSocket(t)
	if _, err := dial(t.Context(), path, time.Millisecond); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("no place within the limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := dial(ctx, path, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has gone: %v", err)
	}
	connected := make(chan net.Conn)
	go func() {
		conn, err := DialSocket(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		connected <- conn
	}()
	for { // the caller that has gone may take a place, too
		accept()
		select {
		case conn := <-connected:
			if conn != nil {
				conn.Close()
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestPrivateSocket: root and the owner use the second socket, and only one that is surely of the program's.
func TestPrivateSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.sock")
	private := filepath.Join(dir, "agent-root.sock")
	serve := func(path string) net.Listener {
		t.Helper()
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	reached := func() string {
		t.Helper()
		conn, err := DialSocket(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.RemoteAddr().String()
	}
	serve(path)
	if got := reached(); got != path {
		t.Errorf("an agent without a second socket: %s", got)
	}
	l := serve(private)
	if got := reached(); got != path {
		t.Errorf("a second socket that others can open: %s", got)
	}
	if err := os.Chmod(private, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := reached(); got != private {
		t.Errorf("the second socket: %s", got)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(private, 4711, 4711); err != nil {
			t.Fatal(err)
		}
		if got := reached(); got != path {
			t.Errorf("a second socket of somebody else: %s", got)
		}
		if err := os.Chown(private, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if got := reached(); got != path {
		t.Errorf("a second socket that an older agent does not serve: %s", got)
	}
}
