package farm

// Every error a user may meet, by code. docs/errors.md explains each; a test holds the two together.
const (
	CodeBadSize    Code = "bad-size"
	CodeBadCPUList Code = "bad-cpu-list"
	CodeBadShape   Code = "bad-shape"
	CodeNoRoom     Code = "no-room"  // the host cannot hold it now
	CodeTooBig     Code = "too-big"  // the host, or the caller's share of it, can never hold it
	CodeBadPlan    Code = "bad-plan" // a check of pins against the host failed
	CodeBadTree    Code = "bad-topology"
)
