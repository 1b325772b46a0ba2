// Package pki is the certificates between hosts and servers: a small authority of the fleet's own, what it issues, what
// a host's certificate says, and the tokens by which a host joins. It keeps nothing: its caller does.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"
)

const (
	caLife     = 5 * 365 * 24 * time.Hour
	serverLife = 90 * 24 * time.Hour
	// HostLife is how long a host's certificate lasts. A host renews it at two thirds of that.
	HostLife = 30 * 24 * time.Hour
	// backdate lets a host whose clock is behind by less use what was issued just now.
	backdate = time.Hour
)

// CA is an authority of the fleet's own. It vouches for hosts, and for servers where the site does not bring
// certificates of its own. ECDSA on P-256.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes an authority.
func NewCA(now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial := newSerial()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "grange fleet " + hex.EncodeToString(serial.Bytes()[:4])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &CA{Certificate: cert, key: key}, err
}

// Made is when NewCA made the authority.
func (c *CA) Made() time.Time { return c.Certificate.NotBefore.Add(backdate) }

// Fingerprint is that of the authority's certificate.
func (c *CA) Fingerprint() string { return Fingerprint(c.Certificate) }

// newSerial is 128 random bits: unique without anybody counting, as RFC 5280 allows.
func newSerial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] = b[0]&0x7f | 0x40 // positive, and of a fixed length
	return new(big.Int).SetBytes(b[:])
}

// Serial is a certificate's serial as it is kept and compared.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// PEM is the authority's certificate.
func (c *CA) PEM() []byte { return certificatePEM(c.Certificate.Raw) }

// CertificatesPEM are certificates, one after the other.
func CertificatesPEM(certs []*x509.Certificate) (text []byte) {
	for _, c := range certs {
		text = append(text, certificatePEM(c.Raw)...)
	}
	return text
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Fingerprint is a certificate's SHA-256, in hexadecimal digits.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Issued is a certificate of a host.
type Issued struct {
	PEM     []byte // the certificate alone: who verifies it has the authority
	Serial  string
	Expires time.Time
}

// hostURI is how a host's certificate names it.
const hostURI = "urn:grange:host:"

// IssueHost issues a host's certificate for the key of a request. Of the request nothing counts but the key, and that
// whoever made the request has it: the names are ours.
func (c *CA) IssueHost(id string, csr []byte, now time.Time) (Issued, error) {
	request, err := readRequest(csr)
	if err != nil {
		return Issued{}, err
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: id, OrganizationalUnit: []string{"host"}},
		URIs: []*url.URL{{Scheme: "urn", Opaque: hostURI[len("urn:"):] + id}}, NotBefore: now.Add(-backdate),
		NotAfter: now.Add(HostLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.Certificate, request.PublicKey, c.key)
	if err != nil {
		return Issued{}, err
	}
	return Issued{PEM: certificatePEM(der), Serial: template.SerialNumber.Text(16), Expires: template.NotAfter}, nil
}

// IssueServer makes a key and a certificate for a listener that is reached by the given host names and addresses, with
// the authority behind it in the chain: a host that joins finds it there by its fingerprint. It lasts 90 days.
func (c *CA) IssueServer(names []string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "grange server"}, NotBefore: now.Add(-backdate),
		NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.Certificate, key.Public(), c.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der, c.Certificate.Raw}, PrivateKey: key, Leaf: leaf}, err
}
