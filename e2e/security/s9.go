package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

const siteAdminFarm = `
[users.ada]

[[grants]]
user = "ada"
role = "admin"
`

// siteAdmin is an administrator of the whole fleet who is not root of the server.
func (s *site) siteAdmin(ctx context.Context) (*person, error) {
	a, err := s.tenants(ctx, siteAdminFarm)
	if err != nil {
		return nil, err
	}
	p, err := a.person(ctx, "ada")
	if err != nil {
		a.close()
	}
	return p, err
}

// filesOfTheServer: an administrator names the server's key as a list of checksums, and as a signature. The image and
// the list before it are there, so that only the file is left to read.
func filesOfTheServer(ctx context.Context, s *site) error {
	p, err := s.siteAdmin(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	listener, err := net.Listen("tcp", outwardAddress()+":0")
	if err != nil {
		return err
	}
	web := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("00  other\n")) })}}
	web.Start()
	defer web.Close()
	key := p.path("farm.db")
	for _, request := range []map[string]any{
		{"sums": key},
		{"sums": "file://" + key},
		{"sums": web.URL + "/SUMS", "signature": key, "keyring": []byte("x")},
	} {
		request["name"], request["source"] = "theirs", web.URL+"/disk.img"
		if err := p.refusedSource(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// ownAddresses: an administrator names a service on the server's loopback as the source of an image.
func ownAddresses(ctx context.Context, s *site) error {
	p, err := s.siteAdmin(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	var asked atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer inner.Close()
	_, port, err := net.SplitHostPort(inner.Listener.Addr().String())
	if err != nil {
		return err
	}
	for _, source := range []string{inner.URL + "/disk.img", "http://localhost:" + port + "/disk.img",
		"http://0.0.0.0:" + port + "/disk.img", "http://[::ffff:127.0.0.1]:" + port + "/disk.img",
		"simplestreams+" + inner.URL + "/#it", "oci+http://127.0.0.1:" + port + "/it"} {
		if err := p.refusedSource(ctx, map[string]any{"name": "theirs", "source": source}); err != nil {
			return err
		}
		if asked.Load() > 0 {
			return breach("the server asked its own address for %s", source)
		}
	}
	return nil
}

// refusedSource has the server add an image, which it is to refuse as root's alone.
func (p *person) refusedSource(ctx context.Context, request map[string]any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, text, err := p.call(ctx, "POST", "/v1/images", string(body))
	if err == nil && !strings.Contains(text, "not-yours") {
		err = breach("the server tried to read it: %s: %s", body, text)
	}
	return err
}

// outwardAddress is an address of this machine that is not its loopback's; "127.0.0.1" where there is none.
func outwardAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
