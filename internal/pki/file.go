package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"

	"github.com/grange-project/grange/internal/farm"
)

// ReadCertificates reads a file of certificates in PEM, at least one.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badFile(path, err)
	}
	var found []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, badFile(path, err)
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil, badFile(path, errors.New("no certificate in it"))
	}
	return found, nil
}

// ReadRoots reads a file of authorities; nil for "".
func ReadRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	found, err := ReadCertificates(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range found {
		pool.AddCert(c)
	}
	return pool, nil
}

func badFile(path string, err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: "no certificates from " + path,
		Hint: "name a file in PEM that the server can read", Err: err}
}
