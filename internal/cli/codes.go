package cli

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of the command line; see docs/errors.md.
const (
	CodeNoAgent     farm.Code = "no-agent"
	CodeNoServer    farm.Code = "no-server"       // none is configured, or it does not answer
	CodeBadToken    farm.Code = "bad-token-file"  // others can read the file of a token
	CodeNeedsYes    farm.Code = "needs-yes"       // nobody there to ask
	CodeBindRefused farm.Code = "bind-refused"    // a bind of files by which a host is controlled
	CodeLostOutput  farm.Code = "lost-output"     // what a command said could not be written
	CodeGivenUp     farm.Code = "vm-never-starts" // a job was queued again as often as it may be
	// a job ended with a status that means something else to its batch system
	CodeStatusTaken farm.Code = "status-taken"
)
