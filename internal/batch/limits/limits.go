// Package limits knows what a batch system's master needs for a fleet of a given size: open files, sockets, ports,
// processes, and the scheduler's own intervals and bounds. Each check is a value with its formula and where that comes
// from. It reads a tree of files, live or recorded, and changes nothing.
package limits

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Fleet is what the master is to carry.
type Fleet struct {
	Hosts int // nodes of the batch system that are machines
	// virtual machines that join it as nodes, at the same time; 0 where jobs run in VMs that the system does not know
	VMs  int
	Jobs int // that run and wait, together
}

// nodes are all that talk to the master.
func (f Fleet) nodes() int { return f.Hosts + f.VMs }

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

// rule is one check.
type rule struct {
	id, what string
	system   farm.BatchSystem // "": of all
	severity Severity
	found    func(m Master) (int64, bool)
	needed   func(f Fleet) int64
	most     bool // needed is the most that is good
	when     func(f Fleet, m Master) bool
	formula  string
	source   string
	fix      string
}

// Check compares a master with a fleet.
func Check(m Master, f Fleet) []Result {
	var all []Result
	for _, r := range rules {
		if r.system != "" && r.system != m.System || r.when != nil && !r.when(f, m) {
			continue
		}
		needed := r.needed(f)
		result := Result{ID: r.id, What: r.what, Severity: r.severity, Formula: r.formula, Source: r.source,
			Fix: strings.ReplaceAll(r.fix, "NEEDED", strconv.FormatInt(needed, 10))}
		result.Needed = map[bool]string{false: "at least ", true: "at most "}[r.most] + strconv.FormatInt(needed, 10)
		if found, ok := r.found(m); ok {
			result.Found = strconv.FormatInt(found, 10)
			if found == Unlimited {
				result.Found = "unlimited"
			}
			result.OK = found >= needed
			if r.most {
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

func whole(n int) int64 { return int64(n) }

// setting is a number of the configuration, and its default.
func setting(key string, otherwise int64) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) {
		text, ok := m.Settings[strings.ToLower(key)]
		if !ok {
			return otherwise, len(m.Settings) > 0 && otherwise >= 0
		}
		return seconds(text)
	}
}

// among is a word KEY=NUMBER in a list of them, as SchedulerParameters is.
func among(list, key string, otherwise int64) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) {
		for word := range strings.SplitSeq(m.Settings[strings.ToLower(list)], ",") {
			if k, v, ok := strings.Cut(word, "="); ok && strings.EqualFold(strings.TrimSpace(k), key) {
				return seconds(v)
			}
		}
		return otherwise, len(m.Settings) > 0
	}
}

// seconds reads a number, or a time as 0:0:15.
func seconds(text string) (int64, bool) {
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

func kernel(file string) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) { v, ok := m.Kernel[file]; return v, ok }
}

func process(limit string) func(Master) (int64, bool) {
	return func(m Master) (int64, bool) { v, ok := m.Limits[limit]; return v, ok }
}
