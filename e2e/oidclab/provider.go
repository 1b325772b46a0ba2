// Package oidclab has a real issuer of people's identities for programs that try sign-ins, oidc-provider from npm, and
// a browser without scripts.
package oidclab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/grange-project/grange/e2e/serverlab"
	"github.com/grange-project/grange/internal/deathsig"
)

// providerPackage is the issuer: one that others run, too, certified by the OpenID foundation.
const providerPackage = "oidc-provider@8.8.1"

//go:embed provider.mjs
var program []byte

// Clients and the audience that the issuer and the server are told.
const (
	ClientID = "grange"
	DeviceID = "grange-cli"
	Secret   = "a secret of the client"
	Audience = "https://grange.example"
)

// settings are what provider.mjs reads.
type settings struct {
	Issuer      string                    `json:"issuer"`
	Port        int                       `json:"port"`
	Certificate string                    `json:"certificate"`
	Key         string                    `json:"key"`
	Clients     []map[string]any          `json:"clients"`
	Keys        map[string][]any          `json:"jwks"`
	Told        []string                  `json:"claims"`
	Accounts    map[string]map[string]any `json:"accounts"`
}

// Provider is the issuer. Its keys are ours, so that tokens can be made that it never would.
type Provider struct {
	settings
	dir     string
	Roots   *x509.CertPool
	Private jose.JSONWebKey
	End     func()
}

// New installs the issuer, which sends browsers to callback; Start starts it. Of each account, by the name that people
// type, it tells the claims.
func New(ctx context.Context, dir, callback string, accounts map[string]map[string]any) (*Provider, error) {
	install := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
		"--prefix", dir, providerPackage)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	p := &Provider{dir: dir, End: func() {}}
	p.Issuer, p.Port = "https://127.0.0.1:"+strconv.Itoa(port), port
	p.Told = []string{"preferred_username", "groups", "wlcg.groups", "eduperson_entitlement"}
	p.Accounts = accounts
	p.Clients = []map[string]any{
		{"client_id": ClientID, "client_secret": Secret, "redirect_uris": []string{callback}},
		{"client_id": DeviceID, "token_endpoint_auth_method": "none", "redirect_uris": []string{},
			"response_types": []string{}, "grant_types": []string{"urn:ietf:params:oauth:grant-type:device_code"}}}
	if err := p.certify(); err != nil {
		return nil, err
	}
	return p, errors.Join(p.Rotate(), os.WriteFile(filepath.Join(dir, "provider.mjs"), program, 0o600))
}

// certify makes the issuer's TLS certificate, and writes it for the server to trust.
func (p *Provider) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	p.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	p.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
	p.Roots = x509.NewCertPool()
	p.Roots.AppendCertsFromPEM([]byte(p.Certificate))
	return os.WriteFile(p.CAFile(), []byte(p.Certificate), 0o600)
}

// CAFile has the certificate by which the issuer is known.
func (p *Provider) CAFile() string { return filepath.Join(p.dir, "issuer.pem") }

// SPKI is by what a browser that checks nothing else knows the issuer's certificate.
func (p *Provider) SPKI() string {
	block, _ := pem.Decode([]byte(p.Certificate))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err) // it is ours
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Trust has browsers know a server, too, by the certificates in a file.
func (p *Provider) Trust(file string) error {
	text, err := os.ReadFile(file)
	if err == nil && !p.Roots.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate", file)
	}
	return err
}

// Rotate makes a new key to sign with, for the next start.
func (p *Provider) Rotate() error {
	key, err := NewKey()
	if err != nil {
		return err
	}
	p.Private = key
	p.Keys = map[string][]any{"keys": {key}}
	return nil
}

// NewKey is one to sign with, which no issuer has yet.
func NewKey() (jose.JSONWebKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(jose.ES256), Use: "sig"}, err
}

// Start starts the issuer and waits until it answers.
func (p *Provider) Start(ctx context.Context) error {
	text, err := json.Marshal(p.settings)
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "provider.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("node", filepath.Join(p.dir, "provider.mjs"), file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	p.End = func() {
		cmd.Process.Kill()
		cmd.Wait()
		p.End = func() {}
	}
	err = serverlab.Await(ctx, serverlab.StartTime, func() error {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port))
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		said, _ := os.ReadFile(filepath.Join(p.dir, "provider.log"))
		return fmt.Errorf("the issuer does not come up: %w\n%s", err, said)
	}
	return nil
}
