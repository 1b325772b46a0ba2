package hostfacts

import "strings"

// maxValue bounds a variable: each may repeat another, so that a few lines could double it many times.
const maxValue = 64 << 10

// assignments reads the NAME=value lines of a shell file into set, with quotes, escapes and variables that set has.
// Anything else in the file is passed over; nothing is run.
func assignments(text string, set map[string]string) {
	for text != "" {
		text = strings.TrimLeft(text, " \t\n;")
		end := 0
		for end < len(text) && nameByte(text[end], end == 0) {
			end++
		}
		if end == 0 || end == len(text) || text[end] != '=' {
			rest, exported := strings.CutPrefix(text, "export ")
			if !exported {
				_, rest, _ = strings.Cut(text, "\n")
			}
			text = rest
			continue
		}
		name := text[:end]
		var value string
		value, text = shellWord(text[end+1:], set)
		set[name] = value
	}
}

func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || !first && c >= '0' && c <= '9'
}

// shellWord reads one word up to a blank, and gives the rest.
func shellWord(s string, set map[string]string) (word, rest string) {
	var b strings.Builder
	quoted := false // in double quotes
	for i := 0; i < len(s) && b.Len() < maxValue; {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			if next := s[i+1]; quoted && !strings.ContainsRune("$`\"\\\n", rune(next)) {
				b.WriteByte('\\')
				b.WriteByte(next)
			} else if next != '\n' {
				b.WriteByte(next)
			}
			i += 2
		case c == '"':
			quoted = !quoted
			i++
		case c == '\'' && !quoted:
			text, _, _ := strings.Cut(s[i+1:], "'")
			b.WriteString(text)
			i += len(text) + 2
		case c == '$':
			value, n := variable(s[i:], set)
			b.WriteString(value)
			i += n
		case !quoted && strings.IndexByte(" \t\n;", c) >= 0:
			return b.String(), s[i:]
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), ""
}

// variable reads $NAME or ${NAME} at the start of s, and how long it is. What is neither stands for itself.
func variable(s string, set map[string]string) (value string, n int) {
	start, closing := 1, ""
	if strings.HasPrefix(s, "${") {
		start, closing = 2, "}"
	}
	end := start
	for end < len(s) && nameByte(s[end], end == start) {
		end++
	}
	if end == start || !strings.HasPrefix(s[end:], closing) {
		return "$", 1
	}
	return set[s[start:end]], end + len(closing)
}
