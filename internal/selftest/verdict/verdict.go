// Package verdict decides what the measurements of a self test say of a host. It is pure: package selftest measures.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Verdict is how a check went.
type Verdict string

// Verdicts, from the best to the worst. NotApplicable is neither.
const (
	NotApplicable Verdict = "not-applicable" // the host has not what the check is about, or it is in use
	Good          Verdict = "good"
	Warning       Verdict = "warning"
	Bad           Verdict = "bad"
)

// Finding is what one check found. Reason and Remedy never name the site: no host, address, user or path but those of
// every host.
type Finding struct {
	Verdict Verdict
	Reason  string // one sentence without a full stop
	Remedy  string // what to do; empty where nothing is to be done
	Details []string
	Figures map[string]float64
}

// Check is one thing that a self test looks at.
type Check struct{ Name, Title string }

// Names of the checks.
const (
	KVM         = "kvm"
	Libvirt     = "libvirt"
	Cgroup      = "cgroup"
	Confinement = "confinement"
	Shapes      = "shapes"
	Pins        = "pins"
	Topology    = "topology"
	Pages2M     = "pages-2m"
	Pages1G     = "pages-1g"
	Streams     = "streams"
	ExitStatus  = "exit-status"
	Start       = "start"
	Memory      = "memory"
	CPU         = "cpu"
	Leaks       = "leaks"
)

// Checks are all checks, in the order in which they are made and reported.
var Checks = []Check{
	{Libvirt, "libvirt answers in time"},
	{Cgroup, "version of control groups"},
	{KVM, "VMs run on KVM"},
	{Confinement, "QEMU is confined"},
	{Shapes, "a VM of each shape that the host can hold"},
	{Pins, "threads and memory are where they were planned"},
	{Topology, "guests see the planned topology"},
	{Pages2M, "memory in pages of 2 MiB"},
	{Pages1G, "memory in pages of 1 GiB"},
	{Streams, "input, output and errors arrive whole"},
	{ExitStatus, "exit status and signals of jobs"},
	{Start, "time to start, against QEMU alone"},
	{Memory, "memory of a VM beside its guest's"},
	{CPU, "a fixed load, against the host"},
	{Leaks, "nothing is left after jobs"},
}

// Known reports whether there is a check of this name.
func Known(name string) bool {
	return slices.ContainsFunc(Checks, func(c Check) bool { return c.Name == name })
}

// Failed is the finding of a check that could not be made: what it needs did not work.
func Failed(what, code string) Finding {
	return Finding{Verdict: Bad, Reason: what + because(code), Remedy: remedyOf(code)}
}

// NoTime is the finding of a check that was given up.
func NoTime(limit string) Finding {
	return Finding{Verdict: Bad, Reason: "not done within " + limit,
		Remedy: "try it alone (--only), then see the agent's log: journalctl -u grange-agent"}
}

// Words of findings about hosts that have no room.
const (
	noRoomNow = "the host has no room for a VM of one vCPU now"
	whenQuiet = "repeat it when fewer jobs run"
)

func because(code string) string {
	if code == "" {
		return ""
	}
	return " [" + code + "]"
}

// ownCodes are of the self test itself: docs/errors.md has none of them.
var ownCodes = []string{"", Late, WrongStatus, NotStarted}

// Codes of jobs that the agent has no code for.
const (
	Late        = "timeout"     // it took longer than a VM may
	WrongStatus = "status"      // it ended with another status than it should
	NotStarted  = "not-started" // there was no VM
)

func remedyOf(code string) string {
	if slices.Contains(ownCodes, code) {
		return "see the agent's log: journalctl -u grange-agent"
	}
	return fmt.Sprintf("see %q in docs/errors.md, and the agent's log: journalctl -u grange-agent", code)
}

// median is the middle of values; the mean of the two middle ones where their number is even; 0 without any.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// band is the verdict on a figure that should be small.
func band(value, good, tolerable float64) Verdict {
	switch {
	case value <= good:
		return Good
	case value <= tolerable:
		return Warning
	}
	return Bad
}

// worse is the worse of two verdicts.
func worse(a, b Verdict) Verdict {
	order := []Verdict{NotApplicable, Good, Warning, Bad}
	return slices.MaxFunc([]Verdict{a, b}, func(a, b Verdict) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
}

func list(words []string) string { return strings.Join(words, "; ") }

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
