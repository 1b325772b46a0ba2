package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"strings"
	"time"
)

// gridCA is an authority of people.
type gridCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newGridCA(name string) (gridCA, error) {
	return gridCA{}.sign(pkix.Name{CommonName: name}, 1)
}

// sign makes a certificate; one of an authority that is none yet is its own.
func (a gridCA) sign(name pkix.Name, serial int64) (made gridCA, err error) {
	if made.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return made, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: name,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	parent, key := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage =
			true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
		parent, key = template, made.key
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, made.key.Public(), key)
	if err != nil {
		return made, err
	}
	made.cert, err = x509.ParseCertificate(der)
	return made, err
}

func (a gridCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a gridCA) shown() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

// revoke writes a revocation list.
func (a gridCA) revoke(path string, serials ...int64) error {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: time.Now()})
	}
	text, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	return errors.Join(err, os.WriteFile(path, text, 0o644))
}

// weakAuthority: one of two authorities signs the other's user, and a certificate that was revoked is shown.
func weakAuthority(ctx context.Context, s *site) error {
	strong, err := newGridCA("Strong CA")
	weak, err2 := newGridCA("Weak CA")
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	file := func(name string, text []byte) string {
		err = errors.Join(err, os.WriteFile(s.path(name), text, 0o644))
		return s.path(name)
	}
	one, other, both := file("strong.pem", strong.pem()), file("weak.pem", weak.pem()), file("both.pem",
		append(strong.pem(), weak.pem()...))
	if err = errors.Join(err, strong.revoke(s.path("strong.crl"), 66)); err != nil {
		return err
	}
	subject := "strong:CN=Ann,O=Grid"
	a, err := s.standalone(ctx, fmt.Sprintf("[people.strong]\nca = %q\ncrl = [%q]\n[people.weak]\nca = %q\n", one,
		s.path("strong.crl"), other))
	if err != nil { // programs before know a list of authorities alone
		subject = "CN=Ann,O=Grid"
		if a, err = s.standalone(ctx, fmt.Sprintf("people_ca = %q\n", both)); err != nil {
			return err
		}
	}
	defer a.close()
	if _, err := a.grange(ctx, "user", "set", "ann", "--subject", subject); err != nil {
		return err
	}
	ann := pkix.Name{CommonName: "Ann", Organization: []string{"Grid"}}
	isAnn := func(by gridCA, serial int64) (bool, error) {
		c, err := by.sign(ann, serial)
		if err != nil {
			return false, err
		}
		status, text, err := a.ask(ctx, a.client(c.shown()), http.MethodGet, "/v1/auth/whoami", nil)
		return status == http.StatusOK && strings.Contains(string(text), `"ann"`), err
	}
	if is, err := isAnn(strong, 5); err != nil || !is {
		return fmt.Errorf("ann's own certificate is not taken: %w", err)
	}
	for _, c := range []struct {
		story  string
		by     gridCA
		serial int64
	}{{"another authority signed ann's subject, and is ann", weak, 5}, {"a certificate that was revoked is taken",
		strong, 66}} {
		is, err := isAnn(c.by, c.serial)
		if err != nil {
			return err
		}
		if is {
			return breach("%s", c.story)
		}
	}
	return nil
}
