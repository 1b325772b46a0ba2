package farm

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the tags of a VM, and of the labels of a host.
const (
	maxTags   = 64
	maxTagKey = 128
	maxTag    = 256 // bytes of a tag's value
)

// validTag reports whether a key has letters and digits, and . _ / : - between them.
func validTag(key string) bool {
	const between = "._/:-"
	other := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && !(r >= '0' && r <= '9') && !strings.ContainsRune(between, r)
	}
	return key != "" && !strings.ContainsFunc(key, other) && strings.Trim(key, between) == key
}

// TagFault returns why tags, or labels, cannot be; "": they can.
func TagFault(tags map[string]string) string {
	if len(tags) > maxTags {
		return fmt.Sprintf("%d tags; at most %d", len(tags), maxTags)
	}
	for k, v := range tags {
		switch {
		case len(k) > maxTagKey || !validTag(k):
			return fmt.Sprintf("invalid tag key %.80q; a key has letters, digits and . _ / : - between them", k)
		case len(v) > maxTag || !utf8.ValidString(v) || v != Printable(v):
			return fmt.Sprintf("tag %s: invalid value %.80q; a value has up to %d printable bytes", k, v, maxTag)
		}
	}
	return ""
}
