package farm

import "time"

// Incident is the shared record of one problem: what it concerns, and what people have said of it.
type Incident struct {
	ID       int64
	Title    string
	Severity IncidentSeverity
	Opener   string
	Opened   time.Time
	Began    time.Time // the problem, as its opener has it
	Ended    time.Time // the problem, as who closed it has it; zero: it is open
	Closed   bool
	Concerns []Concern // in the order in which they were named
	Links    []int64   // other incidents, each of which has a link back
	Entries  int       // how many it has
	Touched  time.Time // when the last of them was written
	Revision int64
}

// IncidentSeverity is how much harm a problem does.
type IncidentSeverity string

// The severities.
const (
	SeverityMinor    IncidentSeverity = "minor"    // somebody should look at it
	SeverityMajor    IncidentSeverity = "major"    // work is slowed down or lost
	SeverityCritical IncidentSeverity = "critical" // much of it, now
)

// IncidentSeverities are all, the least first.
var IncidentSeverities = []IncidentSeverity{SeverityMinor, SeverityMajor, SeverityCritical}

// Concern is one thing that an incident concerns, as it was when somebody named it: who may read and write follows from
// its project and cell, also when the thing itself is gone.
type Concern struct {
	Kind    ConcernKind
	Name    string // of a VM "project/name", of a finding its rule
	ID      string // of a host or a VM
	Project string // of a VM, or the project itself
	Cell    string // of a host or a VM, "": it had none; or the cell itself
}

// ConcernKind is what kind of thing an incident concerns.
type ConcernKind string

// The kinds.
const (
	ConcernHost    ConcernKind = "host"
	ConcernVM      ConcernKind = "vm"
	ConcernFinding ConcernKind = "finding" // of the audit: a rule
	ConcernProject ConcernKind = "project"
	ConcernCell    ConcernKind = "cell"
)

// IncidentEntry is what somebody said or did. Nobody changes it, or takes it away.
type IncidentEntry struct {
	Number   int // from 1
	Time     time.Time
	Who      string
	Kind     IncidentEntryKind
	Text     string
	Severity IncidentSeverity // that it gave the incident; "": as before
	Concerns []Concern        // that it added
	Links    []int64          // that it added
	Ended    time.Time        // of the problem, where it closed the incident
}

// IncidentEntryKind is what an entry did.
type IncidentEntryKind string

// The kinds.
const (
	EntryOpened   IncidentEntryKind = "opened"
	EntryNote     IncidentEntryKind = "note"
	EntryLinked   IncidentEntryKind = "linked"
	EntryClosed   IncidentEntryKind = "closed"
	EntryReopened IncidentEntryKind = "reopened"
)
