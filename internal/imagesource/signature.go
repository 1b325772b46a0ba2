package imagesource

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// VerifySignature returns the text that was signed by a key of keyring, and who signed it. signature is detached, with
// armor or without; nil: text is clear-signed, and what it says outside of the signed part is dropped. Keys that are
// expired or revoked do not count. Error: CodeUnverified.
func VerifySignature(text, signature, keyring []byte, now time.Time) (signed []byte, by string, err error) {
	keys, err := readKeys(keyring)
	if err != nil {
		return nil, "", err
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	var entity *openpgp.Entity
	of, with := bytes.NewReader(text), bytes.NewReader(signature)
	switch block, _ := clearsign.Decode(text); {
	case signature != nil && bytes.HasPrefix(bytes.TrimSpace(signature), []byte("-----BEGIN")):
		entity, err = openpgp.CheckArmoredDetachedSignature(keys, of, with, config)
	case signature != nil:
		entity, err = openpgp.CheckDetachedSignature(keys, of, with, config)
	case block == nil:
		return nil, "", unverified("the list of checksums is not signed", "name its signature as well")
	default:
		text = block.Plaintext
		entity, err = block.VerifySignature(keys, config)
	}
	if err != nil {
		return nil, "", unverified(fmt.Sprintf("the signature is not valid: %v", err),
			"check that the keyring is that of who publishes the image")
	}
	if id := entity.PrimaryIdentity(); id != nil {
		by = id.Name
	}
	return text, fmt.Sprintf("%s (%X)", by, entity.PrimaryKey.Fingerprint), nil
}

// readKeys reads a keyring, with armor or without.
func readKeys(keyring []byte) (openpgp.EntityList, error) {
	read := openpgp.ReadKeyRing
	if bytes.HasPrefix(bytes.TrimSpace(keyring), []byte("-----BEGIN")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(keyring))
	if err != nil || len(keys) == 0 {
		return nil, unverified(fmt.Sprintf("the keyring has no keys that can be read: %v", err),
			"export them with `gpg --export KEY >FILE`")
	}
	return keys, nil
}
