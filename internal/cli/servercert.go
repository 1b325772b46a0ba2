package cli

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/server"
)

// certificates gives each connection what the listener shows, and makes or reads it anew in time.
type certificates struct {
	fresh func(time.Time) (tls.Certificate, error)

	mu    sync.Mutex
	shown *tls.Certificate
	until time.Time // when it is made or read anew
}

// listenerCertificate is what the listener shows: the site's own, or one of the fleet's authority.
func listenerCertificate(ctx context.Context, c config.Server, s *server.Server) (*certificates, error) {
	out := &certificates{}
	if c.Certificate != "" {
		out.fresh = func(time.Time) (tls.Certificate, error) { return tls.LoadX509KeyPair(c.Certificate, c.Key) }
	} else {
		ca, err := s.Authority(ctx)
		if err != nil {
			return nil, err
		}
		names := listenerNames(c)
		out.fresh = func(now time.Time) (tls.Certificate, error) { return ca.IssueServer(names, now) }
	}
	if _, err := out.get(nil); err != nil {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: "no certificate for the listener", Err: err, Hint: "see `certificate` and `key` of server.toml"}
	}
	return out, nil
}

// refresh is how old what is shown may be: a site's own was perhaps renewed, and ours must never end.
const refresh = time.Hour

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.shown != nil && now.Before(c.until) {
		return c.shown, nil
	}
	fresh, err := c.fresh(now)
	if err != nil && c.shown == nil {
		return nil, err
	}
	if err == nil { // otherwise the old one: half-written files are whole a moment later
		c.shown = &fresh
	}
	c.until = now.Add(refresh)
	return c.shown, nil
}

// readOnHangUp makes the next connection have a fresh certificate, after each HUP, and has other files read again.
func (c *certificates) readOnHangUp(log *slog.Logger, others func()) (stop func()) {
	hangUps, end := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-hangUps:
				notify(log, sdnotify.Reloading())
				c.mu.Lock()
				c.until = time.Time{}
				c.mu.Unlock()
				others()
				log.Info("certificate is read again")
				notify(log, sdnotify.Ready)
			case <-end:
				return
			}
		}
	})
	return func() {
		signal.Stop(hangUps)
		close(end)
		loop.Wait()
	}
}

// listenerNames are all names by which the listener is reached.
func listenerNames(c config.Server) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if u, err := url.Parse(c.URL); err == nil {
		names = append(names, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		names = append(names, host)
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return names
}
