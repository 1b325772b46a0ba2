package farm

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Farm is what people decide of the whole fleet, as data: what a farm file says and `grange apply` brings. A nil list
// says nothing of its kind. Revisions mean nothing here.
type Farm struct {
	Cells    []FarmCell
	Projects []Project
	Shapes   []Shape
	Scores   []Score
	Networks []FleetNetwork
	Groups   []ServerGroup
	Users    []User
	Grants   []Grant
	Mappings []Mapping
	Settings *Settings // nil: says nothing of them; so is the next
	Maxima   *Maxima
}

// FarmCell is a cell as a farm file has it. A cell is opened and closed by operators too, who must not be overruled by
// a file that does not mention it.
type FarmCell struct {
	Cell
	Open *bool // nil: as it is, and a new cell is open; Cell.Closed and Cell.Reason count with false alone
}

// Settings are the part of the agents' configuration that the server keeps for all hosts. Zero values leave it to each
// host's own file.
type Settings struct {
	BootTimeout  time.Duration
	DefaultImage string
	Facts        map[string]string // told to every VM, as HS06 = "357"
}

// Equal reports whether both say the same.
func (s Settings) Equal(o Settings) bool {
	return s.BootTimeout == o.BootTimeout && s.DefaultImage == o.DefaultImage && maps.Equal(s.Facts, o.Facts)
}

// IsZero reports whether nothing is set.
func (s Settings) IsZero() bool { return s.Equal(Settings{}) }

// maxName bounds names: they are parts of paths, host names and queues' names.
const maxName = 64

// CheckName refuses names that no cell, project, shape, network or group can have. What it is stands in the message.
// The error is a *Error of kind Invalid.
func CheckName(what, name string) error { return checkName(what, name, "._-") }

// CheckUser refuses names that no user can have.
func CheckUser(name string) error { return checkName("user", name, "._-@+") }

func checkName(what, name, more string) error {
	plain := func(r rune) bool { return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }
	odd := func(r rune) bool { return !plain(r) && !strings.ContainsRune(more, r) }
	var wrong string
	switch {
	case name == "":
		wrong = "is empty"
	case len(name) > maxName:
		wrong = fmt.Sprintf("has more than %d letters", maxName)
	case strings.TrimSpace(name) != name:
		wrong = "begins or ends with white space"
	case strings.ContainsFunc(name, odd):
		wrong = fmt.Sprintf("has %q in it", name[strings.IndexFunc(name, odd):][:1])
	case !plain(rune(name[0])):
		wrong = "begins with no letter or digit"
	default:
		return nil
	}
	return &Error{Kind: Invalid, Code: CodeBadName,
		Message: fmt.Sprintf("no %s can be called %q: the name %s", what, name, wrong),
		Hint: "write letters, digits, " + strings.Join(strings.Split(more, ""), " ") +
			", and a letter or digit first"}
}

// WithDefaults is the cell with what nobody said: grange as its broker, the fullest host first, no overcommitment.
func (c Cell) WithDefaults() Cell {
	if c.Broker == "" {
		c.Broker = BrokerGrange
	}
	if c.Packing == "" {
		c.Packing = Pack
	}
	if c.Overcommit == 0 {
		c.Overcommit = 1
	}
	return c
}

// Validate refuses settings that no host could take.
func (s Settings) Validate() error {
	if s.BootTimeout != 0 && (s.BootTimeout < time.Second || s.BootTimeout > time.Hour) {
		return badFarm("settings", "", "boot_timeout of %v is not between 1s and 1h", s.BootTimeout)
	}
	for key, value := range s.Facts {
		if err := CheckName("fact", key); err != nil {
			return err
		}
		if unprintable(value) {
			return badFarm("settings", "", "fact %s cannot be printed, or is longer than %d bytes", key, maxText)
		}
	}
	if unprintable(s.DefaultImage) {
		return badFarm("settings", "", "no image is called %q", s.DefaultImage)
	}
	return nil
}

// badFarm returns the error about an object that makes no sense on its own; what it names is not looked at.
func badFarm(kind, name, format string, args ...any) error {
	return &Error{Kind: Invalid, Code: CodeBadFarm,
		Message: strings.TrimSpace(kind+" "+name) + ": " + fmt.Sprintf(format, args...),
		Hint:    "docs/guide/cells.md explains every key"}
}

// maxText bounds what people write for people.
const maxText = 1024

func unprintable(s string) bool {
	return len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// twice is a word that is there twice; "": none.
func twice(words []string) string {
	for i, w := range words {
		if slices.Contains(words[:i], w) {
			return w
		}
	}
	return ""
}

func badPattern(patterns []string) string {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return p
		}
	}
	return ""
}
