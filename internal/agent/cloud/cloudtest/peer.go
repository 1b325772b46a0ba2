// Package cloudtest has hosts of a fleet, for tests of moves.
package cloudtest

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/pki"
)

// Peer is a host of a fleet that has one authority.
type Peer struct {
	CA   *pki.CA
	pair tls.Certificate
}

func NewPeer(t *testing.T, ca *pki.CA, id string) Peer {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.IssueHost(id, csr, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.PEM, key)
	if err != nil {
		t.Fatal(err)
	}
	return Peer{ca, pair}
}

func (p Peer) own() []*x509.Certificate { return []*x509.Certificate{p.CA.Certificate} }

func (p Peer) TLS() (*tls.Config, error) { return pki.PeerTLS(p.pair, p.own()), nil }

func (p Peer) Host(s tls.ConnectionState) (string, error) {
	return pki.PeerHost(s, p.own(), time.Now())
}

func (p Peer) Address() (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }
