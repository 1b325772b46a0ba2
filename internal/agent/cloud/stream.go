package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// dialTimeout is how long a port of a VM may take to answer: a VM that has just started may still look for its
// address.
const dialTimeout = 10 * time.Second

// Stream opens a stream to a cloud VM: its serial console, its display, or a port of its own address and of no other.
// The caller closes it. Errors: farm.CodeNoVM where the VM does not run here, farm.CodeBadRequest, farm.CodeVMPort
// where the port does not answer, farm.CodeNoDisplay where the display does not.
func (h *Host) Stream(ctx context.Context, o fleet.StreamOrder) (io.ReadWriteCloser, error) {
	m, w := h.machineOf(o.VM)
	if m == nil {
		return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoVM,
			Message: "VM " + o.VM + " does not run on this host", Hint: "start it, and try again"}
	}
	switch o.Kind {
	case fleet.StreamConsole:
		return m.Console.Open(), nil
	case fleet.StreamDisplay:
		return m.OpenDisplay(ctx)
	case fleet.StreamTCP:
		return dialVM(ctx, w, o.Port)
	}
	return nil, badStream("no stream of kind %q", o.Kind)
}

// dialVM connects to a port of the VM's leased address, over the VM's bridge: whoever may reach a VM through its host
// reaches nothing else of the host's network, and nobody far away who has the same address.
func dialVM(ctx context.Context, w fleet.WantedVM, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, badStream("port %d", port)
	}
	address, err := netip.ParsePrefix(w.Address)
	bridge := hostNetwork(w).Bridge()
	if err != nil || bridge == "" {
		return nil, &farm.Error{Kind: farm.Conflict, Code: farm.CodeVMPort,
			Message: "VM " + w.Name + " has no address that its host could reach",
			Hint:    "make it with a network, or use its console"}
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second,
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, bridge)
			})
			return errors.Join(err, failed)
		}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.Addr().String(), strconv.Itoa(port)))
	if err != nil {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeVMPort,
			Message: fmt.Sprintf("port %d of VM %s does not answer its host", port, w.Name),
			Hint:    "look at its console; its host needs an address in the VM's network, on bridge " + bridge,
			Err:     err}
	}
	return conn, nil
}

func badStream(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: fmt.Sprintf(format, args...),
		Hint: "see `grange exec --help`"}
}
