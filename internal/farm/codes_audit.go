package farm

// Errors of the tuning auditor.
const (
	CodeNoRule     Code = "no-rule"
	CodeNoProfile  Code = "no-profile"
	CodeBadProfile Code = "bad-profile"
)
