package fleet

// Findings are what the tuning audit found on hosts, added up.
type Findings struct {
	Hosts   int            `json:"hosts"`   // that were chosen
	Unknown int            `json:"unknown"` // of them, those that have not reported an audit
	Clean   int            `json:"clean"`   // of them, those that have, without a finding that was chosen
	Rules   []RuleFindings `json:"rules"`   // the most severe first
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
