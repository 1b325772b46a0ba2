package inside

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// publish answers the connections that the job's caller lets through, until the session ends.
func publish(session *guest.Session, ports []uint16) {
	stream := published{session.Stream(guest.StreamPublish)}
	err := guest.RelayHost(context.Background(), stream, func(ctx context.Context, port uint16) (net.Conn, error) {
		if !slices.Contains(ports, port) {
			return nil, errors.New("not published")
		}
		return dialLoopback(ctx, port)
	})
	logf("published ports: %v", err)
}

// dialLoopback connects to a program of this VM, which may listen on either loopback address.
func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	d, at := net.Dialer{Timeout: 5 * time.Second}, strconv.Itoa(int(port))
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", at))
	if err == nil {
		return conn, nil
	}
	if conn, six := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", at)); six == nil {
		return conn, nil
	}
	return nil, err
}

// published is the session's stream, which ends with the session alone.
type published struct{ io.ReadWriter }

func (published) Close() error { return nil }
