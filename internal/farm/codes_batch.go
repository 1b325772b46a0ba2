package farm

// Errors of batch systems.
const (
	CodeBatchAway    Code = "batch-away"    // a batch system does not answer
	CodeBatchGarbled Code = "batch-garbled" // it answers what cannot be read
	CodeNoNode       Code = "no-such-node"
	CodeNotOurs      Code = "not-closed-by-us"
	CodeBadBooking   Code = "bad-booking"
	CodeNoBooking    Code = "no-such-booking"
	CodeNoBatchJob   Code = "no-such-batch-job"
	CodeBadCursor    Code = "bad-cursor"
	CodeBadProgram   Code = "bad-batch-program" // a site's own batch program breaks the protocol
	CodeBackedOff    Code = "backed-off"        // VMs of an image, a user or the host keep failing to start
	CodeBatchLimits  Code = "batch-limits"      // `grange batch check` cannot read what it is to check
	// a batch system's configuration is not where `check` looks, or makes no sense
	CodeBatchConf Code = "batch-conf"
)
