package ledger

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of claims; see docs/errors.md.
const (
	CodeUserLimit   farm.Code = "user-limit"   // one user may not have that much of the host
	CodeHostDrained farm.Code = "host-drained" // no VM starts on the host until a change of it is over
)
