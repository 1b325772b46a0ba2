package api

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// queueTime is how long DialSocket waits for a place in the queue of a socket.
const queueTime = 10 * time.Second

// DialSocket connects to the unix socket of an agent or a server. Where the queue of the socket is full, it waits for a
// place. Root and the account that the program runs as use its second socket, which others cannot fill, where there is
// one.
func DialSocket(ctx context.Context, socket string) (net.Conn, error) {
	if private := privateSocket(socket); private != "" {
		conn, err := dial(ctx, private, queueTime)
		if !unanswered(err) {
			return conn, err
		}
	}
	return dial(ctx, socket, queueTime)
}

// dial connects, and waits at most limit for a place in the queue.
func dial(ctx context.Context, socket string, limit time.Duration) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if !errors.Is(err, syscall.EAGAIN) {
		return conn, err
	}
	return dialInTurn(ctx, socket, limit)
}

// unanswered reports whether no program listens on a socket, or this one may not connect to it.
func unanswered(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES)
}

// PrivateSocket returns the path of the second socket of an agent or a server, which only root and the account that it
// runs as can open: agent-root.sock beside agent.sock.
func PrivateSocket(socket string) string {
	return strings.TrimSuffix(socket, ".sock") + "-root.sock"
}

// privateSocket returns the second socket beside a socket if this process should use it; otherwise "". The owner of the
// socket must have made it: in a directory that others write to it could be anybody's.
func privateSocket(socket string) string {
	real, err := filepath.EvalSymlinks(socket)
	if err != nil {
		return ""
	}
	private := PrivateSocket(real)
	public, err := os.Lstat(real)
	if err != nil {
		return ""
	}
	own, err := os.Lstat(private)
	if err != nil || own.Mode().Type() != os.ModeSocket || own.Mode().Perm()&0o077 != 0 {
		return ""
	}
	owner, known := ownerOf(own)
	publicOwner, _ := ownerOf(public)
	if user := uint32(os.Geteuid()); !known || owner != publicOwner || user != 0 && user != owner {
		return ""
	}
	return private
}

// ownerOf returns the user to whom a file belongs.
func ownerOf(info os.FileInfo) (uid uint32, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return stat.Uid, true
}
