package runner

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of a job that has this process for its other end; see docs/errors.md.
const (
	CodeBindRefused farm.Code = "bind-refused"    // a bind of files by which a host is controlled
	CodeGivenUp     farm.Code = "vm-never-starts" // a job was queued again as often as it may be
	// a job ended with a status that means something else to its batch system
	CodeStatusTaken farm.Code = "status-taken"
)
