package libvirt

import (
	"cmp"
	"context"
	"net"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
)

// Answer returns how long the daemon at socket takes to say what QEMU can do: what it needs for every new machine. The
// connection is one of its own.
func Answer(ctx context.Context, socket string) (time.Duration, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	// A daemon that is stopped accepts connections and answers nothing.
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn := rpc.NewWithDialer(dialer{raw})
	if err := conn.ConnectToURI(rpc.QEMUSystem); err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	began := time.Now()
	if _, err := conn.ConnectGetCapabilities(); err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	return time.Since(began), nil
}
