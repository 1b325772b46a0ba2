// Package procstat reads /proc/PID/stat, see proc(5).
package procstat

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The numbers of fields, as the manual has them.
const (
	state   = 3
	started = 22
)

// Stat is what the kernel says of a process.
type Stat struct{ behind []string } // the name, from field 3 on

// Parse reads the text of the file. The name, in brackets, may hold blanks and brackets; what follows the last one is
// plain.
func Parse(text []byte) Stat {
	return Stat{strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))}
}

// Field is one behind the name, by its number; "": there is none.
func (s Stat) Field(number int) string {
	if i := number - state; i >= 0 && i < len(s.behind) {
		return s.behind[i]
	}
	return ""
}

// Started is when the process started, in clock ticks since boot: its number and this are of one process for ever.
func (s Stat) Started() (uint64, error) {
	text := s.Field(started)
	if text == "" {
		return 0, errors.New("stat is cut short")
	}
	return strconv.ParseUint(text, 10, 64)
}

// Started is when a process of this host started. A zombie counts as gone.
func Started(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	s := Parse(text)
	if is := s.Field(state); is == "Z" || is == "X" {
		return 0, os.ErrNotExist
	}
	return s.Started()
}
