package api

// Raw holds texts that JSON cannot carry in strings, in which U+FFFD replaces what is not UTF-8. A list is nil, or as
// long as the list of strings.
type Raw struct {
	Argv    [][]byte `json:"argv,omitempty"`
	Env     [][]byte `json:"env,omitempty"`
	Dir     []byte   `json:"dir,omitempty"`
	Targets [][]byte `json:"targets,omitempty"` // of Binds
}

// Process is the state of a process that its children inherit.
type Process struct {
	Umask  *uint32 `json:"umask,omitempty"`
	Limits []Limit `json:"limits,omitempty"` // those that are not named are as /proc/PID/limits of the caller says
	// Ignored and Blocked are signals: bit n-1 is signal n.
	Ignored uint64 `json:"ignored,omitempty"`
	Blocked uint64 `json:"blocked,omitempty"`
	Nice    int    `json:"nice,omitempty"`
	// Null and Closed are standard files that are /dev/null, or closed, for the command too: bit n is file n.
	Null   uint8 `json:"null,omitempty"`
	Closed uint8 `json:"closed,omitempty"`
}

// Limit is a resource limit as setrlimit(2) has it on x86-64.
type Limit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"` // 2^64-1: unlimited
	Hard     uint64 `json:"hard"` // at most the caller's own
}
