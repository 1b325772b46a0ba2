package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

const joinPrefix = "grange-join-"

var joinText = base32.StdEncoding.WithPadding(base32.NoPadding)

// JoinToken is what a host needs to join, as one word: who it is to the server, and whom it may believe.
type JoinToken struct {
	ID          string
	Secret      string // 160 random bits
	Fingerprint string // of the authority of the server's certificate
}

// NewJoinToken makes a token for hosts that will meet the given authority.
func NewJoinToken(authority *x509.Certificate) JoinToken {
	var id [5]byte
	var secret [20]byte
	rand.Read(id[:])
	rand.Read(secret[:])
	return JoinToken{ID: strings.ToLower(joinText.EncodeToString(id[:])),
		Secret: strings.ToLower(joinText.EncodeToString(secret[:])), Fingerprint: Fingerprint(authority)}
}

// String is the token as people carry it: a secret.
func (t JoinToken) String() string { return joinPrefix + t.ID + "-" + t.Secret + "-" + t.Fingerprint }

// ParseJoinToken reads a token. The error never repeats any of it.
func ParseJoinToken(text string) (JoinToken, error) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(text), joinPrefix), "-")
	if len(parts) == 3 && strings.HasPrefix(strings.TrimSpace(text), joinPrefix) {
		t := JoinToken{parts[0], parts[1], parts[2]}
		sum, err := hex.DecodeString(t.Fingerprint)
		if err == nil && len(sum) == sha256.Size && len(t.ID) == 8 && len(t.Secret) == 32 {
			return t, nil
		}
	}
	return JoinToken{}, &farm.Error{Kind: farm.Invalid, Code: CodeBadJoin, Message: "invalid join token",
		Hint: "it is one word that begins with " + joinPrefix + "; `grange host token create` makes one"}
}

// Hash is what the server keeps of the token. The secret is long and random, so a plain hash will do.
func (t JoinToken) Hash() []byte {
	sum := sha256.Sum256([]byte(t.Secret))
	return sum[:]
}

// Is reports in constant time whether the token's secret is the one that hash was made of.
func (t JoinToken) Is(hash []byte) bool { return subtle.ConstantTimeCompare(t.Hash(), hash) == 1 }
