package uplink

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/pki"
)

// Codes of a host's side of the link; see docs/errors.md.
const (
	CodeNoIdentity   farm.Code = "not-joined"
	CodeJoined       farm.Code = "joined-already"
	CodeServerCA     farm.Code = "server-not-ours"
	CodeServerName   farm.Code = "server-name"
	CodeServerTime   farm.Code = "server-out-of-time"
	CodeServerAway   farm.Code = "server-away"
	CodeServerAnswer farm.Code = "server-garbled"
	CodeBadServer    farm.Code = "bad-server"
)

// Identity is who a host is to its server, and how it shows that.
type Identity struct {
	Host    string   `json:"host"` // ID
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
	CA      string   `json:"ca"` // PEM: who vouches for servers
	// Key and Certificate are PEM, or, of a host whose certificate the site issues, empty: KeyFile and CertificateFile
	// then name the site's files.
	Key             string `json:"key,omitempty"`
	Certificate     string `json:"certificate,omitempty"`
	KeyFile         string `json:"key_file,omitempty"`
	CertificateFile string `json:"certificate_file,omitempty"`
}

// pair is the host's certificate with its key. A site's files are read each time: the site renews them as it likes.
func (id Identity) pair() (tls.Certificate, error) {
	if id.CertificateFile != "" {
		return tls.LoadX509KeyPair(id.CertificateFile, id.KeyFile)
	}
	return tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key))
}

func (id Identity) authorities() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(id.CA))
	return pool
}

// trusts are the fingerprints of the authorities.
func (id Identity) trusts() []string {
	var all []string
	for block, rest := pem.Decode([]byte(id.CA)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			all = append(all, pki.Fingerprint(&x509.Certificate{Raw: block.Bytes}))
		}
	}
	return all
}

// renewAt is when to ask for the next certificate: at two thirds of the life of the present one. The zero time: the
// site does that.
func (id Identity) renewAt() time.Time {
	if id.CertificateFile != "" {
		return time.Time{}
	}
	pair, err := id.pair()
	if err != nil || pair.Leaf == nil {
		return time.Time{}
	}
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	return pair.Leaf.NotBefore.Add(life * 2 / 3)
}

// IdentityFile is where the identity of a host is, in its directory.
const IdentityFile = "identity.json"

// keeper keeps an identity in a directory that only root can look into. One file holds all of it, so that a crash
// leaves the old one or the new one.
type keeper struct {
	dir  *os.Root
	file string
}

func (k keeper) read() (Identity, error) {
	var id Identity
	text, err := k.dir.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return id, &farm.Error{Kind: farm.NotFound, Code: CodeNoIdentity,
			Message: "this host has not joined a server's fleet", Hint: "`grange host join --help`"}
	}
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err == nil {
		_, err = id.pair()
	}
	if err != nil {
		return id, &farm.Error{Kind: farm.Internal, Code: CodeNoIdentity,
			Message: "this host's identity cannot be read", Err: err, Hint: "join again: `grange host join --replace`"}
	}
	return id, nil
}

func (k keeper) write(id Identity) error {
	text, err := json.MarshalIndent(id, "", "\t")
	if err != nil {
		return err
	}
	made := k.file + ".new"
	if err := k.dir.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := k.dir.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := k.dir.Rename(made, k.file); err != nil {
		return err
	}
	return k.flush()
}

// flush has the directory itself on the disk: what the host reports of its identity must be true after a crash of the
// host, too.
func (k keeper) flush() error {
	d, err := k.dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
