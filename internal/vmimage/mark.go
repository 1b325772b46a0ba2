package vmimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// State is what may be done with an image.
type State string

// The states of an image.
const (
	Active     State = "active"
	Deprecated State = "deprecated" // starts, with a warning
	Withdrawn  State = "withdrawn"  // starts nothing
)

// Mark is what administrators have said of an image: of its content, whatever its names are. The mark of a withdrawn
// image outlives it, so that it does not come back by another way.
type Mark struct {
	State     State     `json:"state"`
	Successor string    `json:"successor,omitempty"` // what to use in its place
	Reason    string    `json:"reason,omitempty"`
	Pinned    bool      `json:"pinned,omitempty"` // Purge leaves it
	Changed   time.Time `json:"changed,omitzero"`
}

// marksDir has a file for each digest that was marked.
const marksDir = "marks"

// SetMark changes the mark of an image. change gets the present one. Errors: farm.CodeNoImage, CodeManyImages,
// farm.CodeImageStore.
func (s *Store) SetMark(ref string, change func(*Mark)) (Image, error) {
	unlock, err := s.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	i, err := s.Get(ref)
	if err != nil {
		return Image{}, err
	}
	m, err := ownMark(s, blobName(i.Digest))
	if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	change(&m)
	m.Changed = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(m)
	if err != nil {
		return Image{}, err
	}
	if err := s.replace(path.Join(marksDir, blobName(i.Digest)), text); err != nil {
		return Image{}, err
	}
	i.Mark, err = s.mark(blobName(i.Digest))
	return i, err
}

// mark is what holds for a blob: this store's mark, or the fleet's. One that cannot be read must not make a withdrawn
// image active.
func (s *Store) mark(blob string) (Mark, error) {
	own, err := ownMark(s, blob)
	if err != nil {
		return Mark{}, err
	}
	s.mu.Lock()
	fleet := s.overruled[strings.Replace(blob, "-", ":", 1)]
	s.mu.Unlock()
	return stricter(own, fleet), nil
}

func ownMark(s *Store, blob string) (Mark, error) {
	m := Mark{State: Active}
	text, err := s.root.ReadFile(path.Join(marksDir, blob))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("the mark of %s: %w", blob, unlink(err))
	}
	return m, nil
}

// Refusal is the error of starting from the image with a digest now; nil if that is allowed.
func Refusal(s *Store, digest string) error {
	m, err := s.mark(blobName(digest))
	if err != nil {
		return storeError(s.dir, err)
	}
	return Image{Digest: digest, Mark: m}.refused()
}

// refused is the error of starting from an image in this state; nil if that is allowed.
func (i Image) refused() error {
	if i.Mark.State != Withdrawn {
		return nil
	}
	e := &farm.Error{Kind: farm.Conflict, Code: farm.CodeWithdrawn,
		Message: fmt.Sprintf("image %s is withdrawn", i.title()), Hint: "use another image: `grange image list`"}
	if i.Mark.Reason != "" {
		e.Message += ": " + i.Mark.Reason
	}
	if i.Mark.Successor != "" {
		e.Hint = "use " + i.Mark.Successor
	}
	return e
}

// Warning is what the user of an image should know; "" for nothing.
func (i Image) Warning() string {
	if i.Mark.State != Deprecated {
		return ""
	}
	text := fmt.Sprintf("image %s is deprecated", i.title())
	if i.Mark.Reason != "" {
		text += ": " + i.Mark.Reason
	}
	if i.Mark.Successor != "" {
		text += "; use " + i.Mark.Successor
	}
	return text
}

// title names an image in messages.
func (i Image) title() string {
	if i.Name != "" {
		return i.Name
	}
	return i.Digest[:len("sha256:")+12]
}
