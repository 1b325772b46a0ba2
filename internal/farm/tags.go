package farm

import (
	"fmt"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/lazyregexp"
)

// Bounds of the tags of a VM, and of the labels of a host.
const (
	maxTags   = 64
	maxTagKey = 128
	maxTag    = 256 // bytes of a tag's value
)

var validTag = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?$`)

// TagFault returns why tags, or labels, cannot be; "": they can.
func TagFault(tags map[string]string) string {
	if len(tags) > maxTags {
		return fmt.Sprintf("%d tags; at most %d", len(tags), maxTags)
	}
	for k, v := range tags {
		switch {
		case len(k) > maxTagKey || !validTag.MatchString(k):
			return fmt.Sprintf("invalid tag key %.80q; a key has letters, digits and . _ / : - between them", k)
		case len(v) > maxTag || !utf8.ValidString(v) || v != Printable(v):
			return fmt.Sprintf("tag %s: invalid value %.80q; a value has up to %d printable bytes", k, v, maxTag)
		}
	}
	return ""
}
