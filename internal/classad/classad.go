// Package classad reads HTCondor's ClassAds as its files have them: a line an attribute. It keeps expressions as text
// and evaluates none.
package classad

import (
	"fmt"
	"strconv"
	"strings"
)

// Ad is one ClassAd. Names of attributes are of any case.
type Ad struct {
	text map[string]string // the expression, by name in lower case
}

// maxAd bounds what is read as one ad: those of jobs have some 10 kB, and users write into them.
const maxAd = 4 << 20

// Parse reads an ad in the form of condor_q -long: "Name = expression", one a line. Empty lines, and comments behind #
// at the beginning of a line, are passed over. Of an attribute that is there twice the last counts, as in HTCondor.
func Parse(text string) (Ad, error) {
	if len(text) > maxAd {
		return Ad{}, fmt.Errorf("a ClassAd of %d bytes", len(text))
	}
	ad := Ad{map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isName(name) || value == "" {
			return Ad{}, fmt.Errorf("invalid ClassAd attribute %.80q", line)
		}
		ad.text[strings.ToLower(name)] = value
	}
	return ad, nil
}

func isName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && (r >= '0' && r <= '9' || r == '.')) {
			return false
		}
	}
	return s != ""
}

// Has reports whether the attribute is there, also as an expression.
func (a Ad) Has(name string) bool { _, ok := a.text[strings.ToLower(name)]; return ok }

// Text is an attribute's expression as it is written; "" where it is not there.
func (a Ad) Text(name string) string { return a.text[strings.ToLower(name)] }

// String is an attribute that is a string and no expression; "" for any other.
func (a Ad) String(name string) string {
	s, ok := unquote(a.Text(name))
	if !ok {
		return ""
	}
	return s
}

// Int is an attribute that is a number and no expression. Fractions are cut off.
func (a Ad) Int(name string) (int64, bool) {
	text := a.Text(name)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	const most = 1 << 62
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > -most && f < most) { // also NaN
		return 0, false
	}
	return int64(f), true
}

// Bool is an attribute that is true or false and no expression.
func (a Ad) Bool(name string) (value, ok bool) {
	switch strings.ToLower(a.Text(name)) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// unquote reads a string as ClassAds write it: backslash escapes as in C.
func unquote(text string) (string, bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	for in := text[1 : len(text)-1]; in != ""; {
		c := in[0]
		in = in[1:]
		if c == '"' {
			return "", false // two strings, or an operator between
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if in == "" {
			return "", false
		}
		c, in = in[0], in[1:]
		switch c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case '0', '1', '2', '3', '4', '5', '6', '7':
			n, digits := int(c-'0'), 1
			for digits < 3 && in != "" && in[0] >= '0' && in[0] <= '7' && 8*n+int(in[0]-'0') < 256 {
				n, in = 8*n+int(in[0]-'0'), in[1:]
				digits++
			}
			b.WriteByte(byte(n))
		default: // \\, \", \' and \/
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// Quote writes a string as ClassAds have it.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
