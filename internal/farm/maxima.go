package farm

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Maxima are what a site lets any VM of the fleet have, whoever asks and whatever the image says. Zero values bound
// nothing.
type Maxima struct {
	CPUs      int
	Memory    Bytes
	Scratch   Bytes
	Guest     GuestTopology // most sockets, cores of a socket, threads of a core that somebody may ask for
	CPUModels []string      // patterns of CPU models that may be asked for; none: all
}

// Check refuses a shape beyond the maxima. The error is a *Error of kind Denied.
func (m Maxima) Check(s Shape) error {
	var over []string
	say := func(is bool, format string, args ...any) {
		if is {
			over = append(over, fmt.Sprintf(format, args...))
		}
	}
	say(m.CPUs > 0 && s.CPUs > m.CPUs, "%d CPUs (at most %d)", s.CPUs, m.CPUs)
	say(m.Memory > 0 && s.Memory > m.Memory, "%v of memory (at most %v)", s.Memory, m.Memory)
	say(m.Scratch > 0 && s.DiskSpace() > m.Scratch, "%v of scratch (at most %v)", s.DiskSpace(), m.Scratch)
	say(m.Guest.Sockets > 0 && s.Guest.Sockets > m.Guest.Sockets, "%d sockets (at most %d)", s.Guest.Sockets,
		m.Guest.Sockets)
	say(m.Guest.Cores > 0 && s.Guest.Cores > m.Guest.Cores, "%d cores a socket (at most %d)", s.Guest.Cores,
		m.Guest.Cores)
	say(m.Guest.Threads > 0 && s.Guest.Threads > m.Guest.Threads, "%d threads a core (at most %d)", s.Guest.Threads,
		m.Guest.Threads)
	model := func(p string) bool { ok, err := path.Match(p, s.CPUModel); return ok && err == nil }
	say(len(m.CPUModels) > 0 && s.CPUModel != "" && !slices.ContainsFunc(m.CPUModels, model),
		"CPU model %s (there are %s)", s.CPUModel, strings.Join(m.CPUModels, ", "))
	if over == nil {
		return nil
	}
	return &Error{Kind: Denied, Code: CodeBeyondMaxima,
		Message: "this site lets no VM have " + strings.Join(over, ", "), Hint: "ask for less, or ask the site"}
}

// Validate refuses maxima that make no sense.
func (m Maxima) Validate() error {
	switch {
	case m.CPUs < 0 || m.Guest.Sockets < 0 || m.Guest.Cores < 0 || m.Guest.Threads < 0:
		return badFarm("maxima", "", "a number below 0")
	case badPattern(m.CPUModels) != "":
		return badFarm("maxima", "", "cpu_models: invalid pattern %q", badPattern(m.CPUModels))
	}
	return nil
}
