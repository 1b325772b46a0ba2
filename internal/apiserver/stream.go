package apiserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// unwrap is what is under a huma.Context.
func unwrap(c huma.Context) (*http.Request, http.ResponseWriter) { return humago.Unwrap(c) }

type streamInput struct {
	VMRef
	Kind       string `query:"kind" enum:"console,display,tcp" default:"console"`
	Port       int    `query:"port" minimum:"0" maximum:"65535" doc:"of tcp"`
	Upgrade    string `header:"Upgrade" doc:"grange-stream, or websocket for browsers"`
	Connection string `header:"Connection" doc:"Upgrade"`
}

// streamRoute opens streams to VMs: consoles, and ports for SSH.
func (a *API) streamRoute() {
	r := route{method: "GET", path: "/v1/vms/{vm}/stream", id: "stream-vm", tag: "VMs",
		summary: "Open a stream to a virtual machine: its console, its display, or a port",
		about: "The connection is upgraded to grange-stream, bytes both ways, or to a WebSocket with the same bytes in " +
			"binary messages. HTTP/1.1 only. A display speaks the protocol of VNC."}
	op := a.operation(r)
	op.Responses["101"] = &huma.Response{Description: "Bytes both ways"}
	register(a, r, op, func(ctx context.Context, who farm.Identity, in *streamInput) (*huma.StreamResponse, error) {
		take := upgrades[strings.ToLower(in.Upgrade)]
		if take == nil || !strings.Contains(strings.ToLower(in.Connection), "upgrade") {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoUpgrade,
				Message: "a stream needs an upgrade of the connection",
				Hint: "send Connection: Upgrade and Upgrade: " + fleet.UpgradeStream +
					" over HTTP/1.1; `grange vm console` and `grange ssh` do"}
		}
		if in.Kind == fleet.StreamTCP && in.Port == 0 {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest,
				Message: "query.port: a stream of kind tcp needs a port", Hint: "add port=22"}
		}
		stream, err := a.server.Streams.Open(ctx, who, in.VM, in.Kind, in.Port)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			defer stream.Close()
			// net/http's own ends with the hijack
			ctx, cancel := whileKnown(context.WithoutCancel(ctx), a.authn, a.keepAlive)
			defer cancel()
			r, w := unwrap(c)
			conn, err := take(ctx, w, r)
			if err != nil {
				a.log.Error("stream failed", "vm", in.VM, "error", err)
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close(); stream.Close() })()
			join(conn, stream)
		}}, nil
	})
}

// upgrades are the protocols that carry the bytes of a stream.
var upgrades = map[string]func(context.Context, http.ResponseWriter, *http.Request) (io.ReadWriteCloser, error){
	fleet.UpgradeStream: func(_ context.Context, w http.ResponseWriter, _ *http.Request) (io.ReadWriteCloser, error) {
		return Upgrade(w)
	},
	"websocket": func(ctx context.Context, w http.ResponseWriter, r *http.Request) (io.ReadWriteCloser, error) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(ctx, conn, websocket.MessageBinary), nil
	},
}

// Upgrade answers 101 and takes the connection. There are no deadlines on it any more.
func Upgrade(w http.ResponseWriter) (io.ReadWriteCloser, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
		fleet.UpgradeStream + "\r\n\r\n")); err != nil {
		conn.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{buffered.Reader, conn, conn}, nil
}

// join copies both ways until one end is over, then closes both.
func join(x, y io.ReadWriteCloser) {
	done := make(chan struct{}, 2)
	copyTo := func(to, from io.ReadWriteCloser) {
		io.Copy(to, from)
		done <- struct{}{}
	}
	go copyTo(x, y)
	go copyTo(y, x)
	<-done
	x.Close()
	y.Close()
	<-done
}
