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
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrLocal is the error of a connection that is refused.
var ErrLocal = errors.New(
	"the address is loopback, link-local, unspecified, multicast or of a cloud's metadata service")

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

// metadata are addresses that are not link-local, and at which clouds give a machine its own credentials.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// translated is the prefix at which networks without IPv4 reach IPv4 addresses, which are the last four bytes.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func local(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if bytes := a.As16(); translated.Contains(a) {
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() ||
		slices.Contains(metadata, a)
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
