package worker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// MaxHosts bounds one host list: a mistyped range shall fail, and not fill the memory.
const MaxHosts = 1 << 16

// Expand reads a host list as Slurm writes it: "vwn[1-3,07-09],login", also with several ranges in a name,
// "r[1-2]n[01-16]". Leading zeros stay. The order is that of the list. The error is a farm.Error with
// CodeBadHostList.
func Expand(list string) ([]string, error) {
	var hosts []string
	for rest := strings.TrimSpace(list); rest != ""; {
		word, after, err := firstWord(rest)
		if err != nil {
			return nil, badList(list, err)
		}
		some, err := expandWord(word, MaxHosts-len(hosts))
		if err != nil {
			return nil, badList(list, err)
		}
		hosts = append(hosts, some...)
		rest = after
	}
	return hosts, nil
}

func badList(list string, err error) error {
	if len(list) > 80 {
		list = list[:80] + "…"
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadHostList,
		Message: fmt.Sprintf("host list %q: %v", list, err), Hint: "write it as Slurm does: node[1-3,07],login"}
}

// firstWord cuts at the first comma outside of brackets.
func firstWord(list string) (word, after string, err error) {
	depth := 0
	for i, c := range list {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				if i == 0 || i+1 == len(list) {
					return "", "", fmt.Errorf("an empty name")
				}
				return list[:i], list[i+1:], nil
			}
		}
		if depth < 0 || depth > 1 {
			return "", "", fmt.Errorf("brackets within brackets, or one that is not open")
		}
	}
	if depth != 0 {
		return "", "", fmt.Errorf("a bracket that is not closed")
	}
	return list, "", nil
}

// expandWord multiplies the ranges of one name.
func expandWord(word string, most int) ([]string, error) {
	names := []string{""}
	for rest := word; rest != ""; {
		text, after, bracket := strings.Cut(rest, "[")
		if strings.ContainsFunc(text, func(c rune) bool { return !legalInName(c) }) {
			return nil, fmt.Errorf("invalid part of a name: %q", text)
		}
		parts := []string{text}
		if bracket {
			inside, tail, _ := strings.Cut(after, "]")
			numbers, err := expandRanges(inside, most)
			if err != nil {
				return nil, err
			}
			for i := range numbers {
				numbers[i] = text + numbers[i]
			}
			parts, after = numbers, tail
		}
		if len(names)*len(parts) > most {
			return nil, fmt.Errorf("more than %d hosts", MaxHosts)
		}
		product := make([]string, 0, len(names)*len(parts))
		for _, n := range names {
			for _, p := range parts {
				product = append(product, n+p)
			}
		}
		names, rest = product, after
	}
	return names, nil
}

func legalInName(c rune) bool {
	return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// expandRanges reads what is between brackets: "1-3,007,9-10".
func expandRanges(text string, most int) ([]string, error) {
	var numbers []string
	for part := range strings.SplitSeq(text, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, err := number(first)
		if err != nil {
			return nil, err
		}
		to, err := number(last)
		if err != nil {
			return nil, err
		}
		if to < from {
			return nil, fmt.Errorf("range %q runs backwards", part)
		}
		if to-from >= most-len(numbers) {
			return nil, fmt.Errorf("more than %d hosts", MaxHosts)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return numbers, nil
}

func number(text string) (int, error) {
	const digits = 9
	if text == "" || len(text) > digits || strings.ContainsFunc(text, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, fmt.Errorf("invalid number %q: at most %d digits", text, digits)
	}
	return strconv.Atoi(text)
}
