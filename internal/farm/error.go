package farm

import (
	"errors"
	"fmt"
	"strings"
)

// Kind sorts errors by what the caller can do about them. Every edge (HTTP status, exit code) maps kinds in one table.
type Kind string

// The kinds of error.
const (
	Internal    Kind = "internal"    // our fault; details go to the log
	Invalid     Kind = "invalid"     // the request is wrong; change it
	NotFound    Kind = "not found"   // no such thing
	Conflict    Kind = "conflict"    // the thing is not in a state that allows this
	Denied      Kind = "denied"      // the caller may not
	Unavailable Kind = "unavailable" // something we need does not answer; try again
	NoCapacity  Kind = "no capacity" // the host has no room now
)

// Code names one error for good. Each has a paragraph in docs/errors.md.
type Code string

// Error is the one error type whose text a user may read: what happened, and what to try.
type Error struct {
	Kind    Kind
	Code    Code
	Message string // what happened; lower case, no full stop
	Hint    string // what to try next; may be empty
	Err     error  // the cause, for the log; may be nil
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// IsKind reports whether an error is an *Error of this kind, also a wrapped one.
func IsKind(err error, k Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}

// IsCode reports whether an error is the *Error of this code, also a wrapped one.
func IsCode(err error, c Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == c
}

// JoinErrors returns one *Error of several, with the kind, code and hint of the first one, and the messages of the
// first few: a farm may be wrong in hundreds of ways. An error that is no *Error is returned alone. Where all are nil,
// JoinErrors returns nil.
func JoinErrors(errs []error) error {
	const most = 5
	var first *Error
	var messages []string
	for _, err := range errs {
		e, ok := errors.AsType[*Error](err)
		switch {
		case err == nil:
			continue
		case !ok:
			return err
		case first == nil:
			first = e
		}
		messages = append(messages, e.Message)
	}
	if first == nil {
		return nil
	}
	if more := len(messages) - most; more > 0 {
		messages = append(messages[:most], fmt.Sprintf("and %d more", more))
	}
	return &Error{Kind: first.Kind, Code: first.Code, Message: strings.Join(messages, "; "), Hint: first.Hint}
}
