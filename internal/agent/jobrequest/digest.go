package jobrequest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/grange-project/grange/api"
)

// Digest is what a record keeps of a request that was allowed: all of it, in a form that no secret can be read from,
// but for what may change when its caller comes again.
func Digest(r *api.JobRequest) string {
	same := *r
	same.Started, same.NoWait, same.Terminal = false, false, nil
	text, err := json.Marshal(same)
	if err != nil {
		return "" // no such request came in as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
