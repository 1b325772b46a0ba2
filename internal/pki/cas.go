package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// CAs are the authorities of a fleet: one, and beside it another one while that replaces it.
type CAs struct {
	Present *CA
	Next    *CA // nil: no rotation is under way
}

// Newest issues hosts' certificates.
func (c CAs) Newest() *CA {
	if c.Next != nil {
		return c.Next
	}
	return c.Present
}

// All are the authorities, the newest first.
func (c CAs) All() []*CA {
	if c.Next != nil {
		return []*CA{c.Next, c.Present}
	}
	return []*CA{c.Present}
}

// Certificates are those of All.
func (c CAs) Certificates() []*x509.Certificate {
	var all []*x509.Certificate
	for _, ca := range c.All() {
		all = append(all, ca.Certificate)
	}
	return all
}

// caFile is how authorities are kept. Releases before rotation read the present one and pass over the next; those
// before the seal kept the key as it is.
type caFile struct {
	Certificate string  `json:"certificate"`
	Key         string  `json:"key,omitempty"`    // PEM
	Sealed      []byte  `json:"sealed,omitempty"` // what Seal makes of that
	Next        *caFile `json:"next,omitempty"`
}

// Marshal writes the authorities, their keys sealed.
func (c CAs) Marshal(seal Seal) ([]byte, error) {
	f, err := c.Present.file(seal)
	if err == nil && c.Next != nil {
		f.Next, err = c.Next.file(seal)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(f)
}

func (c *CA) file(seal Seal) (*caFile, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return nil, err
	}
	f := &caFile{Certificate: string(c.PEM())}
	f.Sealed, err = seal.close(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), c.Certificate.Raw)
	return f, err
}

// Unsealed reports whether a text has an authority whose key is not sealed.
func Unsealed(text []byte) bool {
	var f caFile
	return json.Unmarshal(text, &f) == nil && f.Key != ""
}

// ParseCAs reads what Marshal wrote, and what releases before it did.
func ParseCAs(text []byte, seal Seal) (CAs, error) {
	var f caFile
	if err := json.Unmarshal(text, &f); err != nil {
		return CAs{}, badCA(err)
	}
	present, err := f.parse(seal)
	if err != nil || f.Next == nil {
		return CAs{Present: present}, err
	}
	next, err := f.Next.parse(seal)
	return CAs{Present: present, Next: next}, err
}

func (f *caFile) parse(seal Seal) (*CA, error) {
	key := []byte(f.Key)
	if f.Key == "" {
		block, _ := pem.Decode([]byte(f.Certificate))
		if block == nil {
			return nil, badCA(errors.New("it has no certificate"))
		}
		var err error
		if key, err = seal.open(f.Sealed, block.Bytes); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair([]byte(f.Certificate), key)
	if err != nil {
		return nil, badCA(err)
	}
	own, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, badCA(errors.New("its key is not ECDSA"))
	}
	return &CA{Certificate: pair.Leaf, key: own}, nil
}

func badCA(err error) error { return fmt.Errorf("reading the fleet's authority: %w", err) }

// endWarning is how long before its end an authority is warned of: hosts that are switched on once a season still meet
// its successor.
const endWarning = 365 * 24 * time.Hour

// EndsSoon is the warning that a fleet's newest authority ends; "": it does not yet. It needs no key.
func EndsSoon(newest *x509.Certificate, now time.Time) string {
	switch left := newest.NotAfter.Sub(now); {
	case left <= 0:
		return "the fleet's CA ended at " + stamp(newest.NotAfter) + ": no host has a link any more"
	case left < endWarning:
		return fmt.Sprintf("the fleet's CA ends at %s, in %d days: replace it with `grange server ca rotate`",
			stamp(newest.NotAfter), int(left.Hours()/24))
	}
	return ""
}

// NewestOf reads the certificate of the newest authority of what Marshal wrote, which needs no seal.
func NewestOf(text []byte) (*x509.Certificate, error) {
	var f caFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, badCA(err)
	}
	if f.Next != nil {
		f = *f.Next
	}
	block, _ := pem.Decode([]byte(f.Certificate))
	if block == nil {
		return nil, badCA(errors.New("it has no certificate"))
	}
	return x509.ParseCertificate(block.Bytes)
}

// A server with two authorities has a certificate of each, and shows a client one that it believes. Clients that know
// of rotation name whom they believe, among the protocols of their greeting (ALPN), of which none is ever chosen but
// HTTP. TLS has an extension for just that (certificate_authorities), which Go neither sends nor reads.
const (
	http1     = "http/1.1"
	trustWord = "grange-trusts-"
	// maxTrusted bounds the greeting of a client that believes a site's bundle of authorities, which needs no choice. A
	// fleet's own are two at most.
	maxTrusted = 16
)

// TrustProtocols are the protocols of a client that believes some authorities, by their fingerprints.
func TrustProtocols(fingerprints ...string) []string {
	protocols := []string{http1}
	for _, f := range fingerprints[:min(len(fingerprints), maxTrusted)] {
		protocols = append(protocols, trustWord+f)
	}
	return protocols
}

// Choose returns the first of certs, which are those of All, whose authority a client of such protocols believes. The
// last is for all others: it is of the authority that clients have known for longest.
func Choose(certs []tls.Certificate, protocols []string) *tls.Certificate {
	for i, c := range certs {
		authority := &x509.Certificate{Raw: c.Certificate[len(c.Certificate)-1]}
		if slices.Contains(protocols, trustWord+Fingerprint(authority)) {
			return &certs[i]
		}
	}
	return &certs[len(certs)-1]
}
