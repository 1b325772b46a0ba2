package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Codes of revocation lists; see docs/errors.md.
const (
	CodeRevoked farm.Code = "client-certificate-revoked"
	CodeCRLOld  farm.Code = "revocation-list-old"
)

// lookAgain is how often files of revocation lists are looked at, when somebody is held against them.
const lookAgain = 5 * time.Second

// Revocations are the certificate revocation lists of an authority, in files that others write again and again. It is
// safe for concurrent use.
type Revocations struct {
	paths []string
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	files  []crlFile
}

// crlFile is a file as it was read last.
type crlFile struct {
	info  fs.FileInfo
	lists []crl
}

// crl is one list, whose signature nobody has looked at.
type crl struct {
	*x509.RevocationList
	revoked map[string]bool // by serial
}

// ReadRevocations reads files of lists, each in PEM or DER.
func ReadRevocations(log *slog.Logger, paths ...string) (*Revocations, error) {
	r := &Revocations{paths: paths, log: log, looked: time.Now()}
	for _, path := range paths {
		f, err := readCRLs(path)
		if err != nil {
			return nil, badFile(path, err)
		}
		r.files = append(r.files, f)
	}
	return r, nil
}

// readCRLs reads one file. Its time is looked at first, so that one which is written meanwhile is read again.
func readCRLs(path string) (f crlFile, err error) {
	if f.info, err = os.Stat(path); err != nil {
		return f, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			continue
		}
		if err := f.add(block.Bytes); err != nil {
			return f, err
		}
	}
	if len(f.lists) > 0 {
		return f, nil
	}
	return f, f.add(text)
}

func (f *crlFile) add(der []byte) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	if list.NextUpdate.IsZero() {
		return errors.New("a revocation list does not say when the next one comes")
	}
	c := crl{list, map[string]bool{}}
	for _, e := range list.RevokedCertificateEntries {
		c.revoked[serialText(e.SerialNumber)] = true
	}
	f.lists = append(f.lists, c)
	return nil
}

func serialText(n *big.Int) string { return n.Text(16) }

// Reread has the files read at the next check, whatever their times say.
func (r *Revocations) Reread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked = time.Time{}
	for i := range r.files {
		r.files[i].info = nil
	}
}

// now reads the files that changed. One that cannot be read stays as it was, which does not last: its lists end.
func (r *Revocations) now() []crlFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < lookAgain {
		return r.files
	}
	r.looked = time.Now()
	files := make([]crlFile, len(r.files))
	for i, old := range r.files {
		files[i] = old
		info, err := os.Stat(r.paths[i])
		if err == nil && old.info != nil && os.SameFile(info, old.info) && info.ModTime().Equal(old.info.ModTime()) &&
			info.Size() == old.info.Size() {
			continue
		}
		fresh, err := readCRLs(r.paths[i])
		if err != nil {
			r.log.Warn("revocation list not read, the one before counts", "file", r.paths[i], "error", err)
			continue
		}
		files[i] = fresh
	}
	r.files = files
	return files
}

// Check refuses a chain with a certificate in it that its issuer has revoked, the person's first and the root last. The
// issuer of the person's must have a list that has not ended; those of others count where there are any. The error is a
// *farm.Error.
func (r *Revocations) Check(chain []*x509.Certificate, now time.Time) error {
	files := r.now()
	for i := range len(chain) - 1 {
		list := newest(files, chain[i+1])
		switch {
		case list == nil && i > 0:
		case list == nil:
			return denied(CodeCRLOld, fmt.Sprintf("no revocation list of %q", chain[1].Subject),
				"an administrator of the server gets one, see `crl` in its configuration", nil)
		case now.After(list.NextUpdate):
			return denied(CodeCRLOld, fmt.Sprintf("the revocation list of %q ended at %s", chain[i+1].Subject,
				stamp(list.NextUpdate)),
				"an administrator of the server gets a newer one, see `crl` in its configuration", nil)
		case list.revoked[serialText(chain[i].SerialNumber)]:
			return denied(CodeRevoked,
				fmt.Sprintf("the certificate of %q was revoked by its authority", chain[i].Subject),
				"get a new one from the authority", nil)
		}
	}
	return nil
}

// newest is the list that an issuer has signed last; nil: there is none.
func newest(files []crlFile, issuer *x509.Certificate) (found *crl) {
	for _, f := range files {
		for i, c := range f.lists {
			if !bytes.Equal(c.RawIssuer, issuer.RawSubject) || found != nil && !c.ThisUpdate.After(found.ThisUpdate) {
				continue
			}
			if c.CheckSignatureFrom(issuer) == nil {
				found = &f.lists[i]
			}
		}
	}
	return found
}

// IsRevocation reports whether an error is one of Check.
func IsRevocation(err error) bool {
	own, ok := errors.AsType[*farm.Error](err)
	return ok && (own.Code == CodeRevoked || own.Code == CodeCRLOld)
}
