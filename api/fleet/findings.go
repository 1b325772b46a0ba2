package fleet

import "time"

// Findings are what the tuning audit found on hosts, added up.
type Findings struct {
	Hosts   int            `json:"hosts"`   // that were chosen
	Unknown int            `json:"unknown"` // of them, those that have not reported an audit
	Clean   int            `json:"clean"`   // of them, those that have, without a finding that was chosen
	Rules   []RuleFindings `json:"rules"`   // the most severe first
	Drift   *FindingsDrift `json:"drift,omitempty"`
}

// FindingsDrift is what has changed since a time: what came and went again in between is not in it.
type FindingsDrift struct {
	Since time.Time   `json:"since"`
	Rules []RuleDrift `json:"rules"`          // by name
	Hosts []HostDrift `json:"hosts"`          // the latest change first
	More  int         `json:"more,omitempty"` // changes of hosts that are left out of Hosts
	// hosts that were audited for the first time then: that is no change
	First int `json:"first,omitempty"`
	// there were more changes than are looked at: those before this time are not in it
	Cut *time.Time `json:"cut,omitempty"`
}

// RuleDrift is on how many hosts a rule found something that it had not found, and finds nothing any more.
type RuleDrift struct {
	Rule string `json:"rule"`
	Came int    `json:"came"`
	Gone int    `json:"gone"`
}

// HostDrift is a rule that finds something on a host where it found nothing, or found something and finds nothing.
type HostDrift struct {
	Host string    `json:"host"`
	Cell string    `json:"cell"`
	Kind string    `json:"kind"`
	Rule string    `json:"rule"`
	Came bool      `json:"came"`
	At   time.Time `json:"at"` // of the last change
	// with another release of the agent, whose rules may be others: the host need not have changed
	Updated bool `json:"updated,omitempty"`
}

// RuleFindings are what one rule found.
type RuleFindings struct {
	Rule     string         `json:"rule"`
	Severity string         `json:"severity"` // the highest of its hosts
	Places   int            `json:"places"`   // nodes, CPUs, devices, on all hosts
	Kinds    []KindFindings `json:"kinds"`
	Hosts    []string       `json:"hosts"` // names
}

// KindFindings is how many hosts of a type of hardware a rule found something on.
type KindFindings struct {
	Kind  string `json:"kind"`
	Hosts int    `json:"hosts"`
	Of    int    `json:"of"` // hosts of the type that have reported an audit
}
