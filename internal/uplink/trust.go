package uplink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// tlsOf shows the host's certificate, and believes the authorities of its identity.
func tlsOf(id Identity) *tls.Config {
	roots := id.authorities()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: pki.TrustProtocols(id.trusts()...),
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := id.pair()
			return &pair, err
		},
		InsecureSkipVerify: true, // in favour of VerifyConnection, which says what is wrong
		VerifyConnection:   func(s tls.ConnectionState) error { return verifyServer(s, roots, time.Now()) },
	}
}

// tlsOfToken believes the authority whose fingerprint the token has, which the server must show.
func tlsOfToken(token pki.JoinToken, pair *tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: pki.TrustProtocols(token.Fingerprint), InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair == nil {
				return &tls.Certificate{}, nil
			}
			return pair, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, c := range s.PeerCertificates {
				if pki.Fingerprint(c) == token.Fingerprint {
					roots.AddCert(c)
					return verifyServer(s, roots, time.Now())
				}
			}
			return &farm.Error{Kind: farm.Denied, Code: CodeServerCA,
				Message: "the server " + s.ServerName +
					" is not the one that made the join token: no certificate that it shows has the token's fingerprint",
				Hint: "see that the URL is right and nobody is in between; nothing secret was sent"}
		},
	}
}

// verifyServer reports what is wrong with a server's certificate: whose it is, of what name, of what time.
func verifyServer(s tls.ConnectionState, roots *x509.CertPool, now time.Time) error {
	leaf, between := s.PeerCertificates[0], x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: roots, Intermediates: between,
		CurrentTime: now})
	invalid, wrongName := x509.CertificateInvalidError{}, x509.HostnameError{}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &outOfTime{leaf: leaf, now: now}
	case errors.As(err, &wrongName):
		return &farm.Error{Kind: farm.Denied, Code: CodeServerName,
			Message: fmt.Sprintf("the server's certificate is not for %s but for %s", s.ServerName, namesOf(leaf)),
			Hint:    "reach it by one of its names, or have all its names set in the server's configuration"}
	}
	return &farm.Error{Kind: farm.Denied, Code: CodeServerCA,
		Message: "the server " + s.ServerName + " shows a certificate of an authority that this host does not know",
		Err:     err,
		Hint: "if the fleet's authority was changed, join again: `grange host join --replace`; otherwise somebody is " +
			"in between"}
}

func namesOf(c *x509.Certificate) string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return strings.Join(names, ", ")
}

// outOfTime is a server's certificate that is not valid by this host's clock.
type outOfTime struct {
	leaf *x509.Certificate
	now  time.Time
}

func (o *outOfTime) Error() string {
	return fmt.Sprintf("the server's certificate is valid from %s to %s, and this host's clock says %s",
		o.leaf.NotBefore.UTC().Format(time.RFC3339), o.leaf.NotAfter.UTC().Format(time.RFC3339),
		o.now.UTC().Format(time.RFC3339))
}

// explain makes an outOfTime a farm.Error. It asks the server what time it has, over a connection that is good but for
// the time, and tells it nothing.
func explain(ctx context.Context, err error, server string, trust *tls.Config) error {
	o := new(outOfTime)
	if !errors.As(err, &o) {
		return err
	}
	e := &farm.Error{Kind: farm.Unavailable, Code: CodeServerTime, Message: o.Error(),
		Hint: "set the clocks of both right, best by NTP or chrony"}
	t := trust.Clone()
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
		error) {
		return &tls.Certificate{}, nil
	}
	t.VerifyConnection = func(s tls.ConnectionState) error {
		if pki.Fingerprint(s.PeerCertificates[0]) == pki.Fingerprint(o.leaf) {
			return nil
		}
		return errors.New("another server")
	}
	ask := transport(t)
	defer ask.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, server, nil)
	if err != nil {
		return e
	}
	response, err := ask.RoundTrip(request)
	if err != nil {
		return e
	}
	response.Body.Close()
	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return e
	}
	off := o.now.Sub(theirs)
	switch {
	case off > time.Minute:
		e.Message = fmt.Sprintf("this host's clock is %v ahead of the server's: %s", off.Round(time.Second), o.Error())
	case off < -time.Minute:
		e.Message = fmt.Sprintf("this host's clock is %v behind the server's: %s", -off.Round(time.Second), o.Error())
	default:
		e.Message = "the server's certificate has run out: " + o.Error()
		e.Hint = "start the server anew, or give it a new certificate"
	}
	return e
}
