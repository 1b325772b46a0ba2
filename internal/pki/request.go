package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"

	"github.com/grange-project/grange/internal/farm"
)

// Codes of certificates and join tokens; see docs/errors.md.
const (
	CodeBadRequest  farm.Code = "bad-certificate-request"
	CodeBadJoin     farm.Code = "bad-join-token"
	CodeNoHostCert  farm.Code = "host-certificate-missing"
	CodeUnknownCert farm.Code = "host-certificate-unknown"
	CodeCertTime    farm.Code = "certificate-out-of-time"
)

// NewKey makes a host's key, in PEM: a secret.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// NewRequest asks for a certificate for a key that NewKey made. The answer is PKCS #10, DER.
func NewRequest(keyPEM []byte) ([]byte, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, badRequest("the key is not PEM", nil)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, badRequest("the key cannot be read", err)
	}
	return x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "grange host"}}, key)
}

// readRequest reads a request whose maker has shown that it has the key, and whose key is good enough.
func readRequest(csr []byte) (*x509.CertificateRequest, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, badRequest("the request for a certificate cannot be read", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, badRequest("the request for a certificate is not signed by its own key", err)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve.Params().BitSize >= 256 {
			return request, nil
		}
	case ed25519.PublicKey:
		return request, nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= 2048 && bits <= 8192 {
			return request, nil
		}
	}
	return nil, badRequest("the key is of a kind or size that is not taken", nil)
}

func badRequest(message string, err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadRequest, Message: message, Err: err,
		Hint: "use `grange host join`, which makes a good one"}
}
