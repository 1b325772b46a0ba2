// Package reach bounds which addresses a program connects to for a caller who is not root. A program of root's reaches
// services that trust whoever is on the same host or link; callers are not to reach them through it.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ErrLocal is the error of a connection that is refused.
var ErrLocal = errors.New("the address is loopback, link-local, unspecified or multicast")

// Outside refuses addresses of the host itself and of its links. Private networks stay allowed: sites keep servers of
// images there. A nil Outside refuses nothing.
type Outside struct {
	Host string // that the site has named: its addresses are allowed; "": none
}

// answerTime is how long a connection may take to come up.
const answerTime = 30 * time.Second

// Over returns a transport that connects as t does, if the address is allowed. Each redirect is looked at, too. Where a
// proxy is set, the proxy resolves names, and its own rules hold for them; addresses in URLs are looked at here.
func (o *Outside) Over(t *http.Transport) http.RoundTripper {
	if o == nil {
		return t
	}
	direct := t.Clone()
	direct.Proxy, direct.DialContext = nil, o.dial
	return bounded{proxy: t.Proxy, proxied: t, direct: direct}
}

func (o *Outside) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: answerTime, Control: control}
	if host, _, err := net.SplitHostPort(address); err == nil && o.Host != "" && strings.EqualFold(host, o.Host) {
		d.Control = nil
	}
	return d.DialContext(ctx, network, address)
}

// control is that of a dialer: the name was resolved, and nothing has been sent.
func control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if local(at.Addr()) {
		return fmt.Errorf("%w: %v", ErrLocal, at.Addr())
	}
	return nil
}

func local(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast()
}

// bounded is a transport that connects by itself to allowed addresses alone.
type bounded struct {
	proxy           func(*http.Request) (*url.URL, error)
	proxied, direct http.RoundTripper
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.proxy == nil {
		return b.direct.RoundTrip(r)
	}
	proxy, err := b.proxy(r)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return b.direct.RoundTrip(r)
	}
	if a, err := netip.ParseAddr(r.URL.Hostname()); err == nil && local(a) {
		return nil, fmt.Errorf("%w: %v", ErrLocal, a)
	}
	return b.proxied.RoundTrip(r)
}
