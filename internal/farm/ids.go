package farm

import (
	"fmt"
	"strconv"
	"strings"
)

// IDs are numbers of networks, of VLANs or VNIs, as ranges in the order in which they were written.
type IDs []IDRange

// IDRange is all numbers from First to Last.
type IDRange struct{ First, Last int }

// ParseIDs reads "100-199,300": numbers from 1 to most. The error is a *Error of kind Invalid.
func ParseIDs(text string, most int) (IDs, error) {
	bad := &Error{Kind: Invalid, Code: CodeBadNetworkID, Message: fmt.Sprintf("invalid numbers %q", text),
		Hint: fmt.Sprintf("write numbers from 1 to %d and ranges of them, as 100-199,300", most)}
	var ids IDs
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		first, ok := parseID(from, most)
		last, too := parseID(to, most)
		if !ok || !too || last < first {
			return nil, bad
		}
		ids = append(ids, IDRange{first, last})
	}
	return ids, nil
}

// parseID reads a number as the kernel shows it: "007" is not the name of a network.
func parseID(text string, most int) (id int, ok bool) {
	id, err := strconv.Atoi(text)
	return id, err == nil && id > 0 && id <= most && strconv.Itoa(id) == text
}

// Has reports whether the number is one of them.
func (ids IDs) Has(id int) bool {
	for _, r := range ids {
		if r.First <= id && id <= r.Last {
			return true
		}
	}
	return false
}

// Meets reports whether both have a number.
func (ids IDs) Meets(others IDs) bool {
	for _, r := range ids {
		for _, o := range others {
			if r.First <= o.Last && o.First <= r.Last {
				return true
			}
		}
	}
	return false
}

// String is the numbers as ParseIDs reads them.
func (ids IDs) String() string {
	var texts []string
	for _, r := range ids {
		text := strconv.Itoa(r.First)
		if r.Last != r.First {
			text += "-" + strconv.Itoa(r.Last)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}
