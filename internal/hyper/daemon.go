package hyper

import "time"

// Daemon is how the hypervisor's daemon does, for people.
type Daemon struct {
	Away  string    // why it does not answer; "": it does, or was not asked yet
	Since time.Time // Away
	// that it took for the last request that needs to know what the host can do; 0: none was answered yet
	Answer time.Duration
	Slow   string  // why that is long and what to do, where it is long each time
	Stuck  []Stuck // by name
}

// Stuck is a machine that has ended, and that the daemon does not let go. It holds nothing of the host.
type Stuck struct {
	ID, Name string
	Reason   string // of the last attempt to have it dropped
	Since    time.Time
	Attempts int
}
