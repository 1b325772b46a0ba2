//go:build !linux

package api

import (
	"context"
	"net"
	"syscall"
	"time"
)

// dialInTurn fails: agents and servers run on Linux.
func dialInTurn(_ context.Context, socket string, _ time.Duration) (net.Conn, error) {
	at := &net.UnixAddr{Name: socket, Net: "unix"}
	return nil, &net.OpError{Op: "dial", Net: "unix", Addr: at, Err: syscall.EAGAIN}
}
