package metadata

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// maxTokenLife is EC2's.
const maxTokenLife = 6 * time.Hour

// tokens makes and checks session tokens. A token holds its end and is sealed for one VM, so there is nothing to keep;
// a new agent knows none of the old one's, and SDKs ask for another.
type tokens struct{ key []byte }

func newTokens() tokens {
	key := make([]byte, sha256.Size)
	rand.Read(key)
	return tokens{key}
}

func (t tokens) seal(vm string, end []byte) []byte {
	h := hmac.New(sha256.New, t.key)
	h.Write(end)
	h.Write([]byte(vm))
	return h.Sum(nil)
}

// make makes a token for the VM with this ID.
func (t tokens) make(vm string, end time.Time) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(end.Unix()))
	return base64.URLEncoding.EncodeToString(append(text, t.seal(vm, text)...))
}

// good reports whether the token was made for the VM and has not ended.
func (t tokens) good(token, vm string, now time.Time) bool {
	text, err := base64.URLEncoding.Strict().DecodeString(token) // one text for one token
	if err != nil || len(text) != 8+sha256.Size || !hmac.Equal(text[8:], t.seal(vm, text[:8])) {
		return false
	}
	return now.Unix() < int64(binary.BigEndian.Uint64(text))
}
