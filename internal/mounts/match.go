package mounts

import "strings"

// Match says which mounts are of a file system that people have a name for: all that is set must be so, and a "*" in it
// stands for any text.
type Match struct {
	Source, Type, MountPoint string
}

// Has reports whether a mount is of the file system. One of autofs is, where a mount that it makes could be.
func (m Match) Has(is Mount) bool {
	if is.Type == "autofs" {
		known, _, wild := strings.Cut(m.MountPoint, "*")
		return known != "" && (known == is.Point || Below(known, is.Point) ||
			wild && strings.HasPrefix(is.Point, known))
	}
	fits := func(pattern, text string) bool { return pattern == "" || like(pattern, text) }
	return m != Match{} && fits(m.Source, is.Source) && fits(m.Type, is.Type) && fits(m.MountPoint, is.Point)
}

// like reports whether a text is as a pattern has it.
func like(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !wild {
		return ok && text == ""
	}
	for {
		part, left, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(part):], left
	}
}
