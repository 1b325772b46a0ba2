package pki

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// PeerTLS is one host's side, either one, of a connection between two hosts of a fleet. Both show the certificates by
// which servers know them; a handshake succeeds where the other's is one of a host, of an authority in own.
func PeerTLS(pair tls.Certificate, own []*x509.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // in favour of VerifyConnection: hosts are known by their IDs, not by addresses
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := PeerHost(s, own, time.Now())
			return err
		},
	}
}

// PeerHost is the ID of the host at the other end of such a connection.
func PeerHost(s tls.ConnectionState, own []*x509.Certificate, now time.Time) (string, error) {
	p, err := NewAuthorities(own, nil).Peer(s.PeerCertificates, now)
	return p.ID, err
}
