package farm

// Codes of what one user may have of an agent at a time.
const (
	CodeTooManyJobs  Code = "too-many-jobs"
	CodeTooManyBytes Code = "too-many-bytes"
	CodeSlowRequest  Code = "slow-request" // its body did not come in time
)
