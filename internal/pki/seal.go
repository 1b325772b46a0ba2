package pki

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/grange-project/grange/internal/farm"
)

// Codes of the key file; see docs/errors.md.
const (
	CodeNoSeal  farm.Code = "ca-key-file-missing"
	CodeBadSeal farm.Code = "ca-key-file-wrong"
)

// Seal keeps a secret within a database that others may read, by a key that is not in it: AES-256 in GCM.
type Seal [32]byte

// ReadSeal reads a key file, which nobody but its owner may read.
func ReadSeal(path string) (Seal, error) {
	var s Seal
	f, err := os.Open(path)
	if err != nil {
		return s, noSeal(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, noSeal(path, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return s, &farm.Error{Kind: farm.Invalid, Code: CodeBadSeal,
			Message: fmt.Sprintf("others may read %s, mode %#o", path, info.Mode().Perm()), Hint: "chmod 600 " + path}
	}
	text := make([]byte, 2*len(s)+2) // and a line break, and what is too much
	n, _ := f.Read(text)
	if n, err := hex.Decode(s[:], bytes.TrimSpace(text[:min(n, 2*len(s)+1)])); err != nil || n != len(s) {
		return s, &farm.Error{Kind: farm.Invalid, Code: CodeBadSeal, Message: path + " has no key", Err: err,
			Hint: "bring the file back from where you keep a copy of it: 64 hexadecimal digits"}
	}
	return s, nil
}

func noSeal(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNoSeal,
			Message: "the key file of the fleet's authority cannot be read", Err: err,
			Hint: "see `ca_key_file` of server.toml"}
	}
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoSeal,
		Message: "the key of the fleet's authority is sealed, and the key file " + path + " is not there",
		Hint: "copy it from another server of the fleet, or from where you keep a copy of it; see `ca_key_file` of " +
			"server.toml"}
}

// MakeSeal reads a key file, and makes it where there is none.
func MakeSeal(path string) (Seal, error) {
	var s Seal
	rand.Read(s[:])
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return ReadSeal(path)
	}
	if err != nil {
		return s, &farm.Error{Kind: farm.Unavailable, Code: CodeNoSeal,
			Message: "the key file of the fleet's authority cannot be made", Err: err,
			Hint: "see `ca_key_file` of server.toml"}
	}
	_, err = f.WriteString(hex.EncodeToString(s[:]) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return s, errors.Join(err, os.Remove(path))
	}
	return s, nil
}

func (s Seal) gcm() (cipher.AEAD, error) {
	block, err := aes.NewCipher(s[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// close seals a secret that belongs to what is beside it.
func (s Seal) close(secret, beside []byte) ([]byte, error) {
	g, err := s.gcm()
	if err != nil {
		return nil, err
	}
	return g.Seal(nil, nil, secret, beside), nil
}

func (s Seal) open(sealed, beside []byte) ([]byte, error) {
	g, err := s.gcm()
	if err != nil {
		return nil, err
	}
	secret, err := g.Open(nil, nil, sealed, beside)
	if err != nil {
		return nil, &farm.Error{Kind: farm.Invalid, Code: CodeBadSeal,
			Message: "the key of the fleet's authority is sealed by another key file than this server has",
			Hint: "copy the file from another server of the fleet, or from where you keep a copy of it; see " +
				"`ca_key_file` of server.toml"}
	}
	return secret, nil
}
