package imagesource

import (
	"bufio"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Sum is a checksum of a file: SHA-256 or SHA-512 in hex, told apart by their length.
type Sum string

// ParseSum reads hex digits. Error: CodeUnverified.
func ParseSum(text string) (Sum, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if _, err := hex.DecodeString(text); err != nil || len(text) != 64 && len(text) != 128 {
		return "", unverified(fmt.Sprintf("invalid checksum %q", text), "write 64 hex digits (SHA-256), or 128 (SHA-512)")
	}
	return Sum(text), nil
}

func (s Sum) hash() hash.Hash {
	if len(s) == 2*sha512.Size {
		return sha512.New()
	}
	return sha256.New()
}

// Check reads all of r and compares. Error: CodeUnverified when the sums differ.
func (s Sum) Check(r io.Reader, name string) error {
	h := s.hash()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != string(s) {
		return unverified(fmt.Sprintf("the checksum of %s is %s, and should be %s", name, got, s),
			"the source has another file than the one that was published, or the list of checksums is of another time")
	}
	return nil
}

var (
	// coreutils' form: digits, a space, a space or an asterisk, the name.
	sumLine = lazyregexp.New(`^\\?([0-9a-fA-F]{64}|[0-9a-fA-F]{128})[ \t]+[ *]?(\S.*)$`)
	// BSD's: SHA256 (name) = digits.
	bsdLine = lazyregexp.New(`^SHA(?:256|512) \((.+)\) = ([0-9a-fA-F]{64}|[0-9a-fA-F]{128})$`)
)

// FindSum finds a file in a list of checksums, as sha256sum or BSD's tools write it. Names in the list may have
// directories; two entries that differ for the name are refused. Error: CodeUnverified.
func FindSum(list, name string) (Sum, error) {
	var found Sum
	lines := bufio.NewScanner(strings.NewReader(list))
	for lines.Scan() {
		line, of, digits := strings.TrimRight(lines.Text(), " \t\r"), "", ""
		if m := sumLine.FindStringSubmatch(line); m != nil {
			of, digits = m[2], m[1]
		} else if m := bsdLine.FindStringSubmatch(line); m != nil {
			of, digits = m[1], m[2]
		}
		if path.Base(of) != name || of == "" {
			continue
		}
		sum := Sum(strings.ToLower(digits))
		switch {
		case found != "" && len(found) == len(sum) && found != sum:
			return "", unverified(fmt.Sprintf("the list has two checksums for %s", name), "give the checksum itself")
		case len(sum) > len(found):
			found = sum
		}
	}
	if err := lines.Err(); err != nil {
		return "", unverified("the list of checksums cannot be read: "+err.Error(), "is it the right file?")
	}
	if found == "" {
		return "", unverified(fmt.Sprintf("the list of checksums does not name %s", name),
			"give the list that is published beside the image")
	}
	return found, nil
}

func unverified(message, hint string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeUnverified, Message: message, Hint: hint}
}
