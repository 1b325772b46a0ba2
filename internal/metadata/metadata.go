// Package metadata tells VMs what they are: EC2's metadata service at 169.254.169.254, on each bridge that has VMs, and
// the same as one JSON object. It tells a VM of itself alone, and nobody else anything.
package metadata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Address is where every cloud's VMs ask.
var Address = netip.AddrFrom4([4]byte{169, 254, 169, 254})

// VM is what a VM may know of itself.
type VM struct {
	ID, Name, Project, Owner string
	Hostname                 string
	Cell, Host               string
	Image, Shape             string
	Address                  netip.Prefix
	MAC                      net.HardwareAddr
	Keys                     []string
	UserData                 []byte
	Tags                     map[string]string
}

// Options are what one bridge's service is made of.
type Options struct {
	Bridge string                              // by name; VMs of no other can ask
	Find   func(address netip.Addr) (VM, bool) // which VM on this bridge has leased the address
	// refuse what comes without a session token (EC2 calls that IMDSv2)
	RequireToken bool
	Log          *slog.Logger
}

// The longest that one request, or a connection without one, may take. What is told are a few kilobytes.
const (
	requestTime = 10 * time.Second
	idleTime    = 30 * time.Second
)

// Serve gives the bridge the address, and answers there until ctx ends; then it takes the address away, if it was not
// there before. It needs root. An error tells that the bridge is not there, or that somebody else answers at the
// address.
func Serve(ctx context.Context, o Options) error {
	remove, err := addAddress(o.Bridge, Address)
	if err != nil {
		return fmt.Errorf("address %v on bridge %s: %w", Address, o.Bridge, err)
	}
	defer remove()
	// Each bridge has the address, and each socket takes what comes over its own bridge only.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, o.Bridge)
		})
		return errors.Join(err, failed)
	}}
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort(Address.String(), "80"))
	if err != nil {
		return fmt.Errorf("metadata service of bridge %s: %w", o.Bridge, err)
	}
	h := newHandler(o, func(a netip.Addr) (net.HardwareAddr, bool) { return neighbour(o.Bridge, a) })
	server := &http.Server{Handler: h, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(newFewConnections(l)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metadata service of bridge %s: %w", o.Bridge, err)
	}
	return nil
}
