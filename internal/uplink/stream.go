package uplink

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// maxStreams bounds what one host carries at once.
const maxStreams = 64

// streams are those that the server ordered. An order stays in the wanted list until its stream was brought: each is
// opened once.
type streams struct {
	mu      sync.Mutex
	ordered map[string]bool // orders of the last list
	running int
	all     sync.WaitGroup
}

// open brings the streams of a list that were not in the one before.
func (s *streams) open(life context.Context, l *Link, orders []fleet.StreamOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]bool{}
	for _, o := range orders {
		now[o.ID] = true
		if s.ordered[o.ID] || s.running >= maxStreams {
			continue
		}
		s.running++
		s.all.Go(func() {
			defer s.ended()
			l.bring(life, o)
		})
	}
	s.ordered = now
}

func (s *streams) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// bring opens a stream to a VM and carries its bytes to the server that waits for it, until one end is over. It lives
// on when the link is made anew, and ends with the agent.
func (l *Link) bring(ctx context.Context, o fleet.StreamOrder) {
	_, c := l.present()
	target, err := baseOf(o.Server)
	if err != nil {
		l.log.Warn("stream refused", "vm", o.VM, "reason", err)
		return
	}
	target += fleet.RouteStream + o.ID
	end, err := l.host.Stream(ctx, o)
	if err != nil {
		l.refuse(ctx, c, target, o, err)
		return
	}
	defer end.Close()
	response, err := c.send(ctx, http.MethodPost, target, nil,
		http.Header{"Connection": {"Upgrade"}, "Upgrade": {fleet.UpgradeStream}})
	if err != nil {
		l.log.Warn("stream not brought", "vm", o.VM, "reason", err)
		return
	}
	defer response.Body.Close()
	conn, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		l.log.Warn("stream not brought", "vm", o.VM, "status", response.Status)
		return
	}
	splice(ctx, conn, end)
}

// refuse reports to the server why there is no stream, so that nobody waits for it.
func (l *Link) refuse(ctx context.Context, c *caller, target string, o fleet.StreamOrder, why error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	response, err := c.send(ctx, http.MethodPost, target, problemOfHost(why), nil)
	if err != nil {
		l.log.Warn("stream not refused", "vm", o.VM, "reason", why, "error", err)
		return
	}
	response.Body.Close()
}

// problemOfHost is why the host opens no stream, fit for whoever asked for it.
func problemOfHost(err error) api.Problem {
	own := new(farm.Error)
	if !errors.As(err, &own) {
		own = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "the host could not open the stream",
			Hint: "the agent's log says more"}
	}
	return api.Problem{Type: "grange:" + string(own.Code), Title: string(own.Kind), Detail: own.Message, Hint: own.Hint}
}

// splice copies both ways until one end is over or ctx ends, then closes both.
func splice(ctx context.Context, x, y io.ReadWriteCloser) {
	both := sync.OnceFunc(func() { x.Close(); y.Close() })
	stop := context.AfterFunc(ctx, both)
	defer stop()
	var copies sync.WaitGroup
	copies.Go(func() { io.Copy(x, y); both() })
	copies.Go(func() { io.Copy(y, x); both() })
	copies.Wait()
}
