// Package peer asks the kernel about the other end of a unix socket's connection.
package peer

import (
	"net"

	"golang.org/x/sys/unix"
)

// Cred returns the credentials of the process that made a connection.
func Cred(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	if err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err == nil {
		err = inner
	}
	return cred, err
}

// HungUp reports whether the caller has closed a connection, and nothing that it sent is left to read.
func HungUp(conn *net.UnixConn) (closed bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		closed = n == 0 && err == nil
	})
	return closed || err != nil
}
