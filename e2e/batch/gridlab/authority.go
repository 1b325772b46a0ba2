package gridlab

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is a certificate authority of its own, as grids know it: names begin with domain components.
type authority struct {
	cert   *x509.Certificate
	key    *rsa.PrivateKey
	serial int64
}

// The names of the lab, in the order of their attributes.
const (
	realm     = "/DC=org/DC=example/O=Grid"
	caName    = "Test CA"
	siteName  = "localhost"
	vomsName  = "voms.example.org"
	userName  = "Ada Lovelace"
	otherName = "Charles Babbage"
)

func subject(cn string) pkix.Name {
	dc := asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
	raw := func(oid asn1.ObjectIdentifier, tag int, text string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: oid,
			Value: asn1.RawValue{Class: asn1.ClassUniversal, Tag: tag, Bytes: []byte(text)}}
	}
	return pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		raw(dc, asn1.TagIA5String, "org"), raw(dc, asn1.TagIA5String, "example"),
		raw(asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.TagPrintableString, "Grid"),
		raw(asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.TagPrintableString, cn)}}
}

func newAuthority() (*authority, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject(caName),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, 1}, err
}

// issue writes NAME.pem and NAME.key into dir. A host's certificate is good for a server and a client, a person's for a
// client.
func (a *authority) issue(dir, name, cn string, host bool) error {
	a.serial++
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial), Subject: subject(cn),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	// as RFC 5280, 4.2.1.2 has it; readers of VOMS attributes take no other
	id := sha1.Sum(x509.MarshalPKCS1PublicKey(&key.PublicKey))
	template.SubjectKeyId = id[:]
	if host {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames, template.IPAddresses = []string{cn}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, name+".pem"), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".key"), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), 0o400)
}

// trust fills a directory of trusted authorities, as OpenSSL and Globus look there: by the hash of the name, old and
// new.
func (a *authority) trust(dir string, hashes []string) error {
	policy := fmt.Sprintf("access_id_CA  X509   '%s/CN=%s'\npos_rights    globus CA:sign\ncond_subjects globus "+
		"'\"%s/*\"'\n", realm, caName, realm)
	for _, h := range hashes {
		if err := writePEM(filepath.Join(dir, h+".0"), "CERTIFICATE", a.cert.Raw, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, h+".signing_policy"), []byte(policy), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
