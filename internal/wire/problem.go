package wire

import (
	"errors"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// statusOf is the one table from kinds of error to HTTP's status.
var statusOf = map[farm.Kind]int{
	farm.Internal: 500, farm.Invalid: 400, farm.NotFound: 404,
	farm.Conflict: 409, farm.Denied: 403, farm.Unavailable: 503,
	farm.NoCapacity: 503,
}

// narrower are codes for which HTTP has a word of its own.
var narrower = map[farm.Code]int{
	farm.CodeNotKnown: 401, farm.CodeTooManyTries: 429, farm.CodeConnections: 429, farm.CodeTooLarge: 413,
	farm.CodeTooManyJobs: 429, farm.CodeTooManyBytes: 429, farm.CodeFeedGone: 410, farm.CodeOtherRequest: 422,
	farm.CodeNoUpgrade: 426, farm.CodeTooManyChanges: 429,
}

// Problem makes an error fit for people and for RFC 9457. What is not a farm.Error is our fault, and its text is for
// the log, whose name the hint takes.
func Problem(err error, log string) *api.Problem {
	e := new(farm.Error)
	if !errors.As(err, &e) {
		e = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "internal error: " + err.Error(),
			Hint: "see " + log}
	}
	status, ok := narrower[e.Code]
	if !ok {
		status = statusOf[e.Kind]
	}
	return &api.Problem{Type: "grange:" + string(e.Code), Title: string(e.Kind), Status: status, Detail: e.Error(),
		Hint: e.Hint}
}
