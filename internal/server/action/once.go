package action

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

const (
	maxOnce = 256 // bytes of an idempotency key
	// maxAnswers are kept of one caller, the newest ones. A user who makes changes as quickly as one may has those of
	// more than an hour.
	maxAnswers = 10_000
)

// Once does what makes things once for each idempotency key of a caller, "": each time. do returns their IDs; they come
// back when the request is repeated under its key, and nothing is made then. The request is compared whole, as JSON,
// without its key.
func (c *Call) Once(key string, request any, do func() ([]string, error)) (ids []string, again bool, err error) {
	switch {
	case key == "":
		ids, err = do()
		return ids, false, err
	case len(key) > maxOnce:
		return nil, false, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("an idempotency key of %d bytes; at most %d", len(key), maxOnce),
			Hint:    "a random UUID is enough"}
	}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, false, err
	}
	digest := sha256.Sum256(text)
	was, answer, err := c.Answer(c.Caller(), key)
	switch {
	case Missing(err):
		if ids, err = do(); err != nil {
			return nil, false, err
		}
		if answer, err = json.Marshal(ids); err != nil {
			return nil, false, err
		}
		return ids, false, c.keep(key, digest[:], answer)
	case err != nil:
		return nil, false, err
	case !bytes.Equal(was, digest[:]):
		return nil, false, &farm.Error{Kind: farm.Conflict, Code: farm.CodeOtherRequest,
			Message: "this idempotency key came with another request before",
			Hint:    "make a new key for each request, and use it again only to repeat that request"}
	}
	if err := json.Unmarshal(answer, &ids); err != nil {
		return nil, false, fmt.Errorf("read a kept answer: %w", err)
	}
	return ids, true, nil
}

// keep keeps an answer, and drops the oldest of a user who has too many.
func (c *Call) keep(key string, digest, answer []byte) error {
	if !c.Who.Root {
		if err := c.DropAnswers(c.Caller(), maxAnswers-1); err != nil {
			return err
		}
	}
	return c.PutAnswer(c.Caller(), key, digest, answer, c.Now)
}
