package fleet

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
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
)

// Config says where a server is and who calls.
type Config struct {
	Server string // "https://server.example.org:7480", or "unix:///run/grange-server/server.sock"
	Token  string // empty: none
	// Certificate and Key are files of a client certificate, in PEM; empty: none.
	Certificate, Key string
	CA               string // file of authorities that vouch for the server, in PEM; empty: the system's
}

// Client talks to a server for a person or a tool.
type Client struct {
	VMs            VMClient
	Hosts          HostClient
	Cells          CellClient
	Groups         GroupClient
	SecurityGroups SecurityGroupClient
	Users          UserClient
	Grants         GrantClient
	Tokens         TokenClient
	JoinTokens     JoinTokenClient
	Sessions       SessionClient
	CA             CAClient
	Images         ImageClient

	FileSystems FileSystemClient
	Usage       UsageClient
	Incidents   IncidentClient
	Jobs        JobClient

	http  *http.Client
	base  string
	token string
}

// ErrNoServer is returned, wrapped, when nobody answers where the server should be.
var ErrNoServer = errors.New("no server answers")

// NewClient makes a client. Nothing is connected yet.
func NewClient(c Config) (*Client, error) {
	socket := ""
	base := strings.TrimSuffix(c.Server, "/")
	if path, ok := strings.CutPrefix(c.Server, "unix://"); ok {
		socket, base = path, "http://server"
	} else if u, err := url.Parse(base); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server %q is neither https://HOST:PORT nor unix:///PATH", c.Server)
	}
	trust, err := c.trust()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:           dialTo(socket),
		TLSClientConfig:       trust,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute,
		IdleConnTimeout:       time.Minute,
	}
	out := &Client{http: &http.Client{Transport: transport, CheckRedirect: noRedirect}, base: base, token: c.Token}
	out.SecurityGroups = SecurityGroupClient{out}
	out.VMs, out.Hosts, out.Cells, out.Groups = VMClient{out}, HostClient{out}, CellClient{out}, GroupClient{out}
	out.Users, out.Grants, out.Tokens = UserClient{out}, GrantClient{out}, TokenClient{out}
	out.JoinTokens, out.CA, out.Images = JoinTokenClient{out}, CAClient{out}, ImageClient{out}
	out.FileSystems, out.Sessions = FileSystemClient{out}, SessionClient{out}
	out.Usage, out.Incidents, out.Jobs = UsageClient{out}, IncidentClient{out}, JobClient{out}
	return out, nil
}

// dialTo returns how to connect to a server on a unix socket, or by TCP where socket is "".
func dialTo(socket string) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		if socket != "" {
			address = socket
			conn, err = api.DialSocket(ctx, socket)
		} else {
			conn, err = dialer.DialContext(ctx, network, address)
		}
		if err != nil {
			return nil, fmt.Errorf("%w on %s: %w", ErrNoServer, address, err)
		}
		return conn, nil
	}
}

// noRedirect keeps a token from going where an answer points.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// trust is whom to believe, and what to show.
func (c Config) trust() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", c.CA)
		}
	}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Absent as the revision of what is put creates it: where there is one of its name already, the server refuses.
const Absent = -1

// request is one request.
type request struct {
	method, path string
	query        url.Values
	body         any
	revision     int64  // If-Match; 0: whatever it is; Absent: If-None-Match
	key          string // Idempotency-Key
	upgrade      string
	last         int64 // Last-Event-ID; -1: none
	accept       string
}

// do sends a request. A Problem comes back as an error.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	r.headers(request.Header)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.send(request)
}

func (r request) headers(h http.Header) {
	if r.body != nil {
		h.Set("Content-Type", "application/json")
	}
	switch r.revision {
	case 0:
	case Absent:
		h.Set("If-None-Match", "*")
	default:
		h.Set("If-Match", ETag(r.revision))
	}
	if r.key != "" {
		h.Set("Idempotency-Key", r.key)
	}
	if r.upgrade != "" {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", r.upgrade)
	}
	if r.accept != "" {
		h.Set("Accept", r.accept)
		h.Set("Last-Event-ID", strconv.FormatInt(r.last, 10))
	}
	h.Set(CapabilityHeader, strconv.Itoa(Capability))
}

func (c *Client) send(request *http.Request) (*http.Response, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 { // 101 too: the client asked for that
		return response, nil
	}
	defer response.Body.Close()
	p := &api.Problem{Status: response.StatusCode}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(p); err != nil || p.Detail == "" {
		return nil, fmt.Errorf("the server answered %s to %s %s", response.Status, request.Method, request.URL.Path)
	}
	return nil, p
}

// call sends a request and reads the answer; an empty one leaves T zero.
func call[T any](ctx context.Context, c *Client, r request) (T, error) {
	var out T
	response, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&out); err != nil && !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("answer to %s %s: %w", r.method, r.path, err)
	}
	return out, nil
}

// all reads every page of a list. The revision is that of the first page: to watch from there misses nothing.
func all[T any](ctx context.Context, c *Client, path string, query url.Values) (items []T, revision int64, err error) {
	return some[T](ctx, c, path, query, 0)
}

// some returns as many items of a list as are wanted at most; 0: all.
func some[T any](ctx context.Context, c *Client, path string, query url.Values,
	most int) (items []T, revision int64, err error) {
	query = copyOf(query)
	for first := true; ; first = false {
		size := 1000 // the most: some lists cost the server as much for a short page
		if most > 0 {
			size = min(size, most-len(items))
		}
		query.Set("limit", strconv.Itoa(size))
		page, err := call[Page[T]](ctx, c, request{method: "GET", path: path, query: query})
		if err != nil {
			return nil, 0, err
		}
		if first {
			revision = page.Revision
		}
		items = append(items, page.Items...)
		if page.Next == "" || most > 0 && len(items) >= most {
			return items, revision, nil
		}
		query.Set("after", page.Next)
	}
}

// chosen are the values of a query that are not empty.
func chosen(values map[string]string) url.Values {
	v := url.Values{}
	for key, value := range values {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

func copyOf(query url.Values) url.Values {
	out := url.Values{}
	for k, v := range query {
		out[k] = v
	}
	return out
}

// ETag is the entity tag of a revision.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// Gone reports whether an error says that the change feed does not reach back so far: list anew, and watch from there.
func Gone(err error) bool {
	p := new(api.Problem)
	return errors.As(err, &p) && p.Status == http.StatusGone
}

// Do sends a request that no method of Client is for, to a path of the server; it shows what the client shows. The
// caller closes the body.
func (c *Client) Do(request *http.Request) (*http.Response, error) {
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.send(request)
}
