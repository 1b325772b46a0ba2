package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// dialInTurn connects to a unix socket whose queue is full. A connection that does not block is refused there at once,
// again and again; those that block wait in the kernel, which wakes them in the order in which they came. The call
// blocks a thread until limit at most, also after ctx has ended.
func dialInTurn(ctx context.Context, socket string, limit time.Duration) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := dialBlocking(socket, limit)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// dialBlocking connects, and blocks until there is room in the queue of the socket, or limit is over.
func dialBlocking(socket string, limit time.Duration) (net.Conn, error) {
	failed := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: socket, Net: "unix"}, Err: err}
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed(os.NewSyscallError("socket", err))
	}
	file := os.NewFile(uintptr(fd), socket)
	defer file.Close()
	for end := time.Now().Add(limit); ; {
		left := syscall.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds())
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &left); err != nil {
			return failed(os.NewSyscallError("setsockopt", err))
		}
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
		switch {
		case err == syscall.EINTR && time.Now().Before(end):
			continue
		case err == syscall.EAGAIN || err == syscall.EINTR:
			return failed(fmt.Errorf("the queue of the socket has been full for %v: %w", limit, syscall.EAGAIN))
		case err != nil:
			return failed(os.NewSyscallError("connect", err))
		}
		none := syscall.Timeval{}
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &none); err != nil {
			return failed(os.NewSyscallError("setsockopt", err))
		}
		return net.FileConn(file)
	}
}
