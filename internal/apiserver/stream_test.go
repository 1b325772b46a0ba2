package apiserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/store"
)

// TestConsoleByWebSocket: a browser has the bytes of a console, both ways, until either end is over.
func TestConsoleByWebSocket(t *testing.T) {
	l := newLab(t)
	go l.host(t.Context())
	c := l.root()
	vms, err := c.VMs.Create(t.Context(), "", fleet.VMRequest{Project: "atlas", Name: "web", Image: "micro", Shape: "small"})
	if err != nil {
		t.Fatal(err)
	}
	l.until(c, vms[0].ID, func(v fleet.VM) bool { return v.State == "running" })
	here, there := net.Pipe()
	brought := make(chan error, 1)
	go func() { brought <- l.bring(t.Context(), there) }()
	unix := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
		}}}
	socket, _, err := websocket.Dial(t.Context(), "ws://server/v1/vms/"+vms[0].ID+"/stream?kind=console",
		&websocket.DialOptions{HTTPClient: unix})
	if err != nil {
		t.Fatal(err)
	}
	browser := websocket.NetConn(t.Context(), socket, websocket.MessageBinary)
	long := strings.Repeat("login: ", 10_000) // longer than what a WebSocket reads by itself
	for _, way := range []struct {
		to   io.Writer
		from io.Reader
	}{{here, browser}, {browser, here}} {
		go io.WriteString(way.to, long)
		got := make([]byte, len(long))
		if _, err := io.ReadFull(way.from, got); err != nil || string(got) != long {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	here.Close()
	if _, err := browser.Read(make([]byte, 1)); err == nil {
		t.Error("the browser is not told that the console has ended")
	}
	if err := <-brought; err != nil {
		t.Error(err)
	}
}

// bring waits for the order of a stream and carries it out.
func (l *lab) bring(ctx context.Context, end net.Conn) error {
	for revision := int64(0); ; {
		var orders []store.Stream
		err := l.store.View(ctx, func(tx *store.Tx) (err error) {
			revision = tx.Revision()
			orders, err = tx.Streams("")
			return err
		})
		if err != nil {
			return err
		}
		if len(orders) > 0 {
			return l.server.Streams.Bring(orders[0].Host, orders[0].ID, end)
		}
		if _, err := l.store.Wait(ctx, revision); err != nil {
			return err
		}
	}
}
