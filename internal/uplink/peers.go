package uplink

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/grange-project/grange/internal/pki"
)

// Peers are the other hosts of the fleet, as this host's identity knows them. The identity is read anew each time: it
// is renewed, and a host may join while its agent runs.
type Peers struct{ keep keeper }

// NewPeers reads the identity that Join keeps in a directory.
func NewPeers(dir *os.Root) Peers { return Peers{keeper{dir, IdentityFile}} }

// TLS is this host's side of a connection to another host.
func (p Peers) TLS() (*tls.Config, error) {
	id, err := p.keep.read()
	if err != nil {
		return nil, err
	}
	pair, err := id.pair()
	if err != nil {
		return nil, err
	}
	return pki.PeerTLS(pair, id.certificates()), nil
}

// Host is the ID of the host at the other end. One whose certificate the site issues is not known to other hosts: only
// servers know the site's authority.
func (p Peers) Host(s tls.ConnectionState) (string, error) {
	id, err := p.keep.read()
	if err != nil {
		return "", err
	}
	return pki.PeerHost(s, id.certificates(), time.Now())
}

// Address is the address of this host that leads to its server. Nothing is sent for it.
func (p Peers) Address() (netip.Addr, error) {
	id, err := p.keep.read()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, server := range id.Servers {
		u, parsed := url.Parse(server)
		if err = parsed; err != nil {
			continue
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		var conn net.Conn
		if conn, err = net.Dial("udp", net.JoinHostPort(u.Hostname(), port)); err != nil {
			continue
		}
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
	}
	return netip.Addr{}, err
}

func (id Identity) certificates() (all []*x509.Certificate) {
	for block, rest := pem.Decode([]byte(id.CA)); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}
