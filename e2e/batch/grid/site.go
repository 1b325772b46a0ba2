package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// payload is what the pilot fetches and runs. It needs a repository that nobody has used before.
const payload = `#!/bin/sh
. /cvmfs/atlas.example.org/setup.sh
echo "release $ATLAS_RELEASE on $(hostname)"
`

// runSite is the site's side: a web server and a name server at all addresses of its network. What is uploaded is in
// dir, with the uploader's address in a file beside it.
func runSite(ctx context.Context, dir string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /payload", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, payload) })
	mux.HandleFunc("PUT /output/{name}", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		path := filepath.Join(dir, filepath.Base(r.PathValue("name")))
		if err == nil {
			err = errors.Join(os.WriteFile(path+".from", []byte(r.RemoteAddr), 0o644), os.WriteFile(path, text, 0o644))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	web, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1+len(nameServers))
	go func() { ended <- server.Serve(web) }()
	for _, at := range nameServers {
		go func() { ended <- serveNames(ctx, at) }()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// zone is what the name server knows: www4 has an address of IPv4 alone, www6 of IPv6.
var zone = map[string]netip.Addr{
	"www4." + domain: netip.MustParseAddr(web4),
	"www6." + domain: netip.MustParseAddr(web6),
}

// nameServers are those of the guide. Each has a socket of its own: an answer comes from where the question went.
var nameServers = []string{"10.1.0.2", "2001:db8::2"}

func serveNames(ctx context.Context, at string) error {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(at, "53"))
	for err != nil { // until the address is there
		select {
		case <-time.After(20 * time.Millisecond):
			conn, err = net.ListenPacket("udp", net.JoinHostPort(at, "53"))
		case <-ctx.Done():
			return err
		}
	}
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if reply, err := answer(buf[:n]); err == nil {
			conn.WriteTo(reply, from)
		}
	}
}

const (
	typeA    = 1
	typeAAAA = 28
)

// answer is the reply to a question of DNS (RFC 1035): the address of the family that is asked for, no address where
// the name has only one of the other family, or that there is no such name.
func answer(question []byte) ([]byte, error) {
	const head = 12
	name, at := []string{}, head
	for {
		if at >= len(question) {
			return nil, errors.New("a question that is cut off")
		}
		size := int(question[at])
		at++
		if size == 0 {
			break
		}
		if at+size > len(question) {
			return nil, errors.New("a label that is cut off")
		}
		name = append(name, string(question[at:at+size]))
		at += size
	}
	if at+4 > len(question) {
		return nil, errors.New("a question without a type")
	}
	kind := binary.BigEndian.Uint16(question[at:])
	reply := append([]byte{}, question[:at+4]...)
	address, known := zone[strings.ToLower(strings.Join(name, "."))]
	flags, answers := uint16(0x8580), uint16(0) // a reply, with authority
	if !known {
		flags |= 3
	}
	if known && (kind == typeA && address.Is4() || kind == typeAAAA && address.Is6()) {
		answers = 1
		reply = append(reply, 0xc0, head) // the name that was asked for
		reply = binary.BigEndian.AppendUint16(reply, kind)
		reply = append(reply, 0, 1, 0, 0, 0, 60)
		reply = binary.BigEndian.AppendUint16(reply, uint16(len(address.AsSlice())))
		reply = append(reply, address.AsSlice()...)
	}
	for i, field := range []uint16{flags, 1, answers, 0, 0} {
		binary.BigEndian.PutUint16(reply[2+2*i:], field)
	}
	return reply, nil
}

// uploaded returns what a pilot sent, and from which address.
func uploaded(dir, name string) (text string, from netip.Addr, err error) {
	body, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", from, err
	}
	who, err := os.ReadFile(filepath.Join(dir, name+".from"))
	if err != nil {
		return "", from, err
	}
	at, err := netip.ParseAddrPort(string(who))
	if err != nil {
		return "", from, fmt.Errorf("the upload's address: %w", err)
	}
	return string(body), at.Addr().Unmap(), nil
}
