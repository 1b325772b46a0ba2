package farm

import (
	"slices"
	"strings"
)

// CodeBadSubject is an error code; see docs/errors.md.
const CodeBadSubject Code = "bad-subject"

// Attribute is one part of a certificate's subject, as CN=Ann.
type Attribute struct{ Type, Value string }

// Subject is the subject of a certificate, the most special part first, as RFC 2253 writes it. Parts of several
// attributes, as CN=Ann+UID=5, are not taken: no authority that we know of makes them.
type Subject []Attribute

// subjectTypes are the ways in which programs write one and the same type.
var subjectTypes = map[string]string{"E": "emailAddress", "EMAIL": "emailAddress", "EMAILADDRESS": "emailAddress",
	"S": "ST", "USERID": "UID"}

// ParseSubject reads both forms in use: RFC 2253's "CN=Ann,O=Grid,C=CH", and the grid's "/C=CH/O=Grid/CN=Ann". The
// error is a *Error of kind Invalid.
func ParseSubject(text string) (Subject, error) {
	text = strings.TrimSpace(text)
	var parts []string
	if strings.HasPrefix(text, "/") {
		parts = slashParts(text)
	} else {
		parts = commaParts(text)
	}
	var s Subject
	for _, part := range parts {
		kind, value, ok := strings.Cut(part, "=")
		a := NewAttribute(kind, strings.TrimSpace(value))
		if !strings.HasPrefix(text, "/") {
			a.Value = unescape(spaceless(value))
		}
		if !ok || a.Type == "" || strings.ContainsFunc(a.Type, notInType) || a.Value == "" {
			return nil, &Error{Kind: Invalid, Code: CodeBadSubject,
				Message: "no subject of a certificate: " + `"` + text + `"`,
				Hint: "write it as CN=Ann,O=Grid,C=CH or as /C=CH/O=Grid/CN=Ann; `openssl x509 -noout -subject " +
					"-nameopt RFC2253` shows it"}
		}
		s = append(s, a)
	}
	if strings.HasPrefix(text, "/") {
		slices.Reverse(s)
	}
	return s, nil
}

// NewAttribute writes the type as we compare it.
func NewAttribute(kind, value string) Attribute {
	kind = strings.ToUpper(strings.TrimSpace(kind))
	if usual, ok := subjectTypes[kind]; ok {
		kind = usual
	}
	return Attribute{kind, value}
}

// slashParts splits the grid's form. A slash within a value, as in CN=host/wn1.example.org, is one that no "TYPE="
// follows.
func slashParts(text string) []string {
	var parts []string
	for piece := range strings.SplitSeq(text[1:], "/") {
		kind, _, ok := strings.Cut(piece, "=")
		if len(parts) > 0 && (!ok || strings.ContainsFunc(kind, notInType)) {
			parts[len(parts)-1] += "/" + piece
			continue
		}
		parts = append(parts, piece)
	}
	return parts
}

func notInType(c rune) bool {
	return c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// commaParts splits RFC 2253's form at commas that are not escaped.
func commaParts(text string) []string {
	var parts []string
	start, escaped := 0, false
	for i := range len(text) {
		switch {
		case escaped:
			escaped = false
		case text[i] == '\\':
			escaped = true
		case text[i] == ',':
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// spaceless is a value without spaces around it; an escaped one belongs to it.
func spaceless(value string) string {
	value = strings.TrimLeft(value, " ")
	short := strings.TrimRight(value, " ")
	if strings.HasSuffix(short, `\`) && !strings.HasSuffix(short, `\\`) && short != value {
		return short + " "
	}
	return short
}

func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// escape is a value as RFC 2253 writes it.
func escape(value string) string {
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		if strings.IndexByte(`,+"\<>;`, c) >= 0 || i == 0 && (c == ' ' || c == '#') || i == len(value)-1 && c == ' ' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// String is RFC 2253's form, in which subjects are kept and compared.
func (s Subject) String() string {
	parts := make([]string, len(s))
	for i, a := range s {
		parts[i] = a.Type + "=" + escape(a.Value)
	}
	return strings.Join(parts, ",")
}

// Below reports whether a subject is in a namespace: its last parts are those of that.
func (s Subject) Below(namespace Subject) bool {
	return len(s) >= len(namespace) && slices.Equal(s[len(s)-len(namespace):], namespace)
}

// BindSubject is a user's certificate, as Users have it: its subject, and before that the name of the authority whose
// certificates alone count, as "cern:CN=Ann,O=Grid". Without a name it is the only authority that there is.
func BindSubject(authority, subject string) string {
	if authority == "" {
		return subject
	}
	return authority + ":" + subject
}

// PlainSubject is what BindSubject makes, from what people write. The error is a *Error of kind Invalid.
func PlainSubject(text string) (string, error) {
	authority, subject, bound := strings.Cut(strings.TrimSpace(text), ":")
	if !bound || strings.ContainsAny(authority, "=/") { // a colon in a value
		authority, subject = "", text
	} else if err := CheckName("authority", authority); err != nil {
		return "", err
	}
	s, err := ParseSubject(subject)
	if err != nil {
		return "", err
	}
	return BindSubject(authority, s.String()), nil
}

// PlainSubjects are subjects in the one form in which they are compared. The error is a *Error of kind Invalid.
func PlainSubjects(texts []string) ([]string, error) {
	var plain []string
	for _, text := range texts {
		p, err := PlainSubject(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(plain, p) {
			plain = append(plain, p)
		}
	}
	return plain, nil
}
