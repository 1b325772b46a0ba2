package uplink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

const (
	dialTime = 10 * time.Second
	// of a TLS handshake: a server that thousands come back to at once is slow, and giving up makes it slower
	shakeTime  = 30 * time.Second
	answerTime = 30 * time.Second
	pollTime   = 2 * time.Minute // the server answers much earlier, if it can
	maxAnswer  = 64 << 20        // bytes of a wanted list: thousands of VMs with user data
	// of the connection for reports: the server has thousands of them, and most have nothing to say for minutes
	idleTime = 3 * time.Second
)

// caller sends a host's requests to one of its servers: the one that answered last, or else the next.
type caller struct {
	http  *http.Client
	trust *tls.Config

	mu      sync.Mutex
	servers []string
	at      int
	shook   *tls.ConnectionState // of the last answer; nil: there was none
	theirs  int                  // fleet.Capability of the server that answered last; 0: none said it
}

// newCaller makes a caller. Servers that the configuration names go before those of the identity.
func newCaller(id Identity, servers []string) (*caller, error) {
	trust := tlsOf(id)
	c := &caller{http: &http.Client{Transport: transport(trust), CheckRedirect: noRedirect}, trust: trust}
	for _, s := range slices.Concat(servers, id.Servers) {
		base, err := baseOf(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(c.servers, base) {
			c.servers = append(c.servers, base)
		}
	}
	if len(c.servers) == 0 {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeBadServer, Message: "no server is named",
			Hint: "set `urls` below [server] in the agent's configuration"}
	}
	return c, nil
}

// baseOf checks the URL of a server.
func baseOf(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", &farm.Error{Kind: farm.Invalid, Code: CodeBadServer,
			Message: fmt.Sprintf("invalid server %q", server),
			Hint:    "write https://HOST:PORT"}
	}
	return "https://" + u.Host, nil
}

// transport is small: a host has one poll under way, and a report now and then.
func transport(t *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return shake(ctx, conn, t, address)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: idleTime, ReadBufferSize: 2 << 10, WriteBufferSize: 2 << 10,
		// HTTP/1.1 alone: streams upgrade a connection
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// shake returns conn once the server at an address has shown a certificate of it.
func shake(ctx context.Context, conn net.Conn, t *tls.Config, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	t = t.Clone()
	t.ServerName = host
	verify := t.VerifyConnection
	t.VerifyConnection = func(s tls.ConnectionState) error {
		s.ServerName = host // "" of an IP address, which is not a name to TLS: any name would do
		return verify(s)
	}
	shaken := tls.Client(conn, t)
	err = conn.SetDeadline(time.Now().Add(shakeTime))
	if err == nil {
		err = shaken.HandshakeContext(ctx)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return shaken, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *caller) close() { c.http.CloseIdleConnections() }

func (c *caller) server() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[c.at]
}

// next goes on with the next server, if it is still the given one that did not answer.
func (c *caller) next(failed string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers[c.at] == failed {
		c.at = (c.at + 1) % len(c.servers)
	}
}

// call sends a request with a body, unless nil, and reads the answer into out. The status is 200 or 204; anything else
// is an error.
func (c *caller) call(ctx context.Context, method, route string, body, out any) (status int, err error) {
	server := c.server()
	response, err := c.send(ctx, method, server+route, body, nil)
	if err != nil {
		c.next(server)
		return 0, err
	}
	defer response.Body.Close()
	c.mu.Lock()
	c.shook = response.TLS
	c.mu.Unlock()
	if err := problemOf(response); err != nil {
		if farm.IsKind(err, farm.Unavailable) || farm.IsKind(err, farm.Internal) {
			c.next(server)
		}
		return response.StatusCode, err
	}
	if out == nil || response.StatusCode == http.StatusNoContent {
		return response.StatusCode, nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(out); err != nil {
		return response.StatusCode, garbled(server, err)
	}
	io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10)) // so that the connection can be used again
	return response.StatusCode, nil
}

// vouched checks the server that answered last against other authorities than those by which it was believed.
func (c *caller) vouched(roots *x509.CertPool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return verifyServer(*c.shook, roots, time.Now())
}

func (c *caller) send(ctx context.Context, method, target string, body any,
	header http.Header) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		request.Header[k] = v
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set(fleet.CapabilityHeader, strconv.Itoa(c.capability()))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, away(target, explain(ctx, err, target, c.trust))
	}
	c.hear(response.Header)
	return response, nil
}

// capability is what this host says that it understands: what the server does as well, where the server is older and
// this release still works with it. A server refuses hosts that are too far ahead of it.
func (c *caller) capability() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.theirs >= fleet.OldestCapability && c.theirs < fleet.Capability {
		return c.theirs
	}
	return fleet.Capability
}

// hear learns the capability of the server that answered.
func (c *caller) hear(answer http.Header) {
	if n, err := strconv.Atoi(answer.Get(fleet.CapabilityHeader)); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.theirs = n
	}
}

// away is why there is no answer: what was found wrong with the server, or that it cannot be reached.
func away(target string, err error) error {
	own := new(farm.Error)
	if errors.As(err, &own) {
		return own
	}
	u, _ := url.Parse(target)
	inner := new(url.Error)
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeServerAway, Message: "the server does not answer on " + u.Host,
		Err: err, Hint: "see whether it runs, and whether this host reaches it"}
}

func garbled(server string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeServerAnswer,
		Message: "the answer of " + server + " makes no sense", Err: err,
		Hint: "see whether there is a grange server, and which release it is"}
}

// problemOf reads a refusal.
func problemOf(response *http.Response) error {
	if response.StatusCode < 300 {
		return nil
	}
	var p api.Problem
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&p); err != nil || p.Detail == "" {
		return garbled(response.Request.URL.Host, errors.New(response.Status))
	}
	return &farm.Error{Kind: farm.Kind(p.Title), Code: farm.Code(strings.TrimPrefix(p.Type, "grange:")),
		Message: p.Detail, Hint: p.Hint}
}
