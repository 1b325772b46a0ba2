package app

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of the command line; see docs/errors.md.
const (
	CodeNoAgent  farm.Code = "no-agent"
	CodeNoServer farm.Code = "no-server"      // none is configured, or it does not answer
	CodeBadToken farm.Code = "bad-token-file" // others can read the file of a token
	CodeNeedsYes farm.Code = "needs-yes"      // nobody there to ask
)
