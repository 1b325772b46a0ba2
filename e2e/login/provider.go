package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
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

// Clients and audience that the issuer and the server are told.
const (
	clientID = "grange"
	deviceID = "grange-cli"
	secret   = "a secret of the client"
	audience = "https://grange.example"
)

// settings are what provider.mjs reads.
type settings struct {
	Issuer      string                    `json:"issuer"`
	Port        int                       `json:"port"`
	Certificate string                    `json:"certificate"`
	Key         string                    `json:"key"`
	Clients     []map[string]any          `json:"clients"`
	Keys        map[string][]any          `json:"jwks"`
	Claims      []string                  `json:"claims"`
	Accounts    map[string]map[string]any `json:"accounts"` // by the name that people type
}

// provider is the issuer. Its keys are ours, so that tokens can be made that it never would.
type provider struct {
	settings
	dir   string
	roots *x509.CertPool
	key   jose.JSONWebKey
	end   func()
}

// newProvider installs the issuer; start starts it.
func newProvider(ctx context.Context, dir, callback string, accounts map[string]map[string]any) (*provider, error) {
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
	p := &provider{dir: dir, end: func() {}}
	p.Issuer, p.Port = "https://127.0.0.1:"+strconv.Itoa(port), port
	p.Claims = []string{"preferred_username", "groups", "wlcg.groups", "eduperson_entitlement"}
	p.Accounts = accounts
	p.Clients = []map[string]any{
		{"client_id": clientID, "client_secret": secret, "redirect_uris": []string{callback}},
		{"client_id": deviceID, "token_endpoint_auth_method": "none", "redirect_uris": []string{},
			"response_types": []string{}, "grant_types": []string{"urn:ietf:params:oauth:grant-type:device_code"}}}
	if err := p.certify(); err != nil {
		return nil, err
	}
	return p, errors.Join(p.rotate(), os.WriteFile(filepath.Join(dir, "provider.mjs"), program, 0o600))
}

// certify makes the issuer's TLS certificate, and writes it for the server to trust.
func (p *provider) certify() error {
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
	p.roots = x509.NewCertPool()
	p.roots.AppendCertsFromPEM([]byte(p.Certificate))
	return os.WriteFile(p.caFile(), []byte(p.Certificate), 0o600)
}

func (p *provider) caFile() string { return filepath.Join(p.dir, "issuer.pem") }

// rotate makes a new key to sign with, for the next start.
func (p *provider) rotate() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	p.key = key
	p.Keys = map[string][]any{"keys": {key}}
	return nil
}

func newKey() (jose.JSONWebKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(jose.ES256), Use: "sig"}, err
}

// start starts the issuer and waits until it answers.
func (p *provider) start(ctx context.Context) error {
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
	p.end = func() {
		cmd.Process.Kill()
		cmd.Wait()
		p.end = func() {}
	}
	err = serverlab.Await(ctx, startTime, func() error {
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
