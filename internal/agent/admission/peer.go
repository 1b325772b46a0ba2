package admission

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// getsockoptBytes reads a socket option that is an array of 32-bit numbers.
func getsockoptBytes(fd, level, option int, into []uint32) ([]uint32, error) {
	size := uint32(4 * len(into))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, errno
	}
	return into[:size/4], nil
}

// PeerGroups is SO_PEERGROUPS, which golang.org/x/sys does not wrap.
func PeerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		raw, err := getsockoptBytes(fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, groups)
		if err == unix.ERANGE && len(groups) < 1<<16 {
			groups = make([]uint32, 4*len(groups))
			continue
		}
		return raw, err
	}
}

// Peer returns who made the connection: the process with its user and group, and its other groups.
func (c *Connection) Peer() (cred *unix.Ucred, groups []uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var inner error
	if err = raw.Control(func(fd uintptr) {
		if cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); inner == nil {
			groups, inner = PeerGroups(int(fd))
		}
	}); err == nil {
		err = inner
	}
	if err != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, groups, nil
}
