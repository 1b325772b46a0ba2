// Package limits knows what a batch system's master needs for a fleet of a given size: open files, sockets, ports,
// processes, and the scheduler's own intervals and bounds. Each check is a value with its formula and where that comes
// from. It reads a tree of files, live or recorded, and changes nothing.
package limits

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Fleet is what the master is to carry.
type Fleet struct {
	Hosts int // nodes of the batch system that are machines
	// virtual machines that join it as nodes, at the same time; 0 where jobs run in VMs that the system does not know
	VMs  int
	Jobs int // that run and wait, together
}

// Nodes are all that talk to the master.
func (f Fleet) Nodes() int { return f.Hosts + f.VMs }

// Severity says what a limit that is too small does.
type Severity string

// The severities.
const (
	Fails Severity = "fails" // the master refuses jobs or nodes
	Slow  Severity = "slow"  // it answers late
)

// Result is one check of one master.
type Result struct {
	ID       string
	What     string
	Found    string // "": not to be seen, or not set and without a default
	Needed   string
	OK       bool
	Unknown  bool // nothing was found to compare
	Severity Severity
	Formula  string
	Source   string
	Fix      string
}

// System is what is known of one batch system's master.
type System struct {
	Daemons []string // whose limits count, in the order in which they are looked for
	Conf    []string // where its configuration is when nobody says otherwise; that of others lies anywhere
	Rules   []Rule
	Line    func(m *Master, line string) // takes what it knows from a line of the configuration, or nil
}

// Rule is one check.
type Rule struct {
	ID, What string
	Severity Severity
	Found    func(m Master) (int64, bool)
	Needed   func(f Fleet) int64
	// OfMaster is in place of Needed and Formula where the need depends on the master's own configuration.
	OfMaster func(f Fleet, m Master) (needed int64, formula string)
	Most     bool // Needed is the most that is good
	When     func(f Fleet, m Master) bool
	Formula  string
	Source   string
	Fix      string // NEEDED stands for the number
}

// rules are those of the system, and the general ones that it does not replace.
func (s System) rules() []Rule {
	all := slices.Clone(s.Rules)
	for _, g := range general {
		if !slices.ContainsFunc(s.Rules, func(r Rule) bool { return r.ID == g.ID }) {
			all = append(all, g)
		}
	}
	return all
}

// Check compares a master with a fleet.
func Check(m Master, f Fleet) []Result {
	var all []Result
	for _, r := range m.system.rules() {
		if r.When != nil && !r.When(f, m) {
			continue
		}
		needed, formula := r.need(f, m)
		result := Result{ID: r.ID, What: r.What, Severity: r.Severity, Formula: formula, Source: r.Source,
			Fix: strings.ReplaceAll(r.Fix, "NEEDED", strconv.FormatInt(needed, 10))}
		result.Needed = map[bool]string{false: "at least ", true: "at most "}[r.Most] + strconv.FormatInt(needed, 10)
		if found, ok := r.Found(m); ok {
			result.Found = strconv.FormatInt(found, 10)
			if found == Unlimited {
				result.Found = "unlimited"
			}
			result.OK = found >= needed
			if r.Most {
				result.OK = found <= needed
			}
		} else {
			result.Unknown = true
		}
		all = append(all, result)
	}
	slices.SortStableFunc(all, func(a, b Result) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// need returns how much a fleet needs of this master, and the formula of it.
func (r Rule) need(f Fleet, m Master) (int64, string) {
	if r.OfMaster != nil {
		return r.OfMaster(f, m)
	}
	return r.Needed(f), r.Formula
}

// rank puts what fails first.
func rank(r Result) int {
	switch {
	case r.OK:
		return 3
	case r.Unknown:
		return 2
	case r.Severity == Slow:
		return 1
	}
	return 0
}

// Worst is the severity of the worst that was found wrong; "" when nothing was.
func Worst(results []Result) Severity {
	worst := Severity("")
	for _, r := range results {
		if !r.OK && !r.Unknown && (worst == "" || r.Severity == Fails) {
			worst = r.Severity
		}
	}
	return worst
}

// Setting is a number of the configuration, and its default.
func Setting(key string, otherwise int64) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) {
		text, ok := m.Settings[strings.ToLower(key)]
		if !ok {
			return otherwise, len(m.Settings) > 0 && otherwise >= 0
		}
		return Seconds(text)
	}
}

// Among is a word KEY=NUMBER in a list of them, as SchedulerParameters and qmaster_params are.
func Among(list, key string, otherwise int64) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) {
		for word := range strings.FieldsFuncSeq(m.Settings[strings.ToLower(list)], separates) {
			if k, v, ok := strings.Cut(word, "="); ok && strings.EqualFold(strings.TrimSpace(k), key) {
				return Seconds(v)
			}
		}
		return otherwise, len(m.Settings) > 0
	}
}

// separates reports what is between words of a list: commas, in Grid Engine also blanks.
func separates(r rune) bool { return r == ',' || r == ' ' || r == '\t' }

// Seconds reads a number, or a time as 0:0:15.
func Seconds(text string) (int64, bool) {
	total := int64(0)
	for part := range strings.SplitSeq(strings.TrimSpace(text), ":") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return 0, false
		}
		total = 60*total + n
	}
	return total, true
}

// Kernel is a setting below /proc/sys.
func Kernel(file string) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) { v, ok := m.Kernel[file]; return v, ok }
}

// Process is a limit of the process, by its name in /proc/PID/limits.
func Process(limit string) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) { v, ok := m.Limits[limit]; return v, ok }
}
