package daemon

import (
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

// certificates give each connection what the listener shows.
type certificates struct {
	get   func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	again func() // has the next connection have a fresh one
}

// listenerCertificate is what the listener shows: the site's own, or one of the fleet's authorities.
func listenerCertificate(c config.Server, s *server.Server) (certificates, error) {
	if c.Certificate == "" {
		shown := s.Links.ListenerCertificates(listenerNames(c))
		return certificates{shown.Get, shown.Again}, nil
	}
	site := &siteCertificate{read: func() (tls.Certificate, error) { return tls.LoadX509KeyPair(c.Certificate, c.Key) }}
	if _, err := site.get(nil); err != nil {
		return certificates{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: "no certificate for the listener", Err: err, Hint: "see `certificate` and `key` of server.toml"}
	}
	return certificates{site.get, site.again}, nil
}

// siteCertificate is one that the site brought, and is read anew in time.
type siteCertificate struct {
	read func() (tls.Certificate, error)

	mu    sync.Mutex
	shown *tls.Certificate
	until time.Time // when it is read anew
}

// refresh is how old what is shown may be: the site's own was perhaps renewed.
const refresh = time.Hour

func (c *siteCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.shown != nil && now.Before(c.until) {
		return c.shown, nil
	}
	fresh, err := c.read()
	if err != nil && c.shown == nil {
		return nil, err
	}
	if err == nil { // otherwise the old one: half-written files are whole a moment later
		c.shown = &fresh
	}
	c.until = now.Add(refresh)
	return c.shown, nil
}

func (c *siteCertificate) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

// readOnHangUp makes the next connection have a fresh certificate, after each HUP, and has other files read again.
func (c certificates) readOnHangUp(log *slog.Logger, others func()) (stop func()) {
	hangUps, end := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-hangUps:
				notify(log, sdnotify.Reloading())
				c.again()
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
	for _, text := range append([]string{c.URL}, c.Servers...) { // one of servers may be an address that several share
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			names = append(names, u.Hostname())
		}
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		names = append(names, host)
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return names
}
