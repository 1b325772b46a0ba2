package store

import (
	"context"
	"errors"

	"github.com/grange-project/grange/internal/farm"
)

// What a database can refuse. See docs/errors.md.
const (
	CodeNoStore     farm.Code = "no-store"
	CodeStoreBusy   farm.Code = "store-busy"
	CodeStoreFull   farm.Code = "store-full"
	CodeStoreFailed farm.Code = "store-failed"
	CodeDamaged     farm.Code = "store-damaged"
	CodeNotAFarm    farm.Code = "store-of-something-else"
	CodeNotEmpty    farm.Code = "store-not-empty"
	CodeLater       farm.Code = "store-of-later-release"
	CodeBadEncoding farm.Code = "store-encoding"
	CodeUnsure      farm.Code = "store-unsure" // the answer to a commit was lost
	CodeBadText     farm.Code = "bad-text"
	CodeAbsent      farm.Code = "absent"
	CodeTaken       farm.Code = "taken" // a name, an address, a subject that is another's
	CodeNotLeader   farm.Code = "not-leader"
)

// explain makes an error one that a user may read.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if _, own := errors.AsType[*farm.Error](err); own {
		return err
	}
	if e := s.engine.explain(err); e != nil {
		return e
	}
	if _, maybe := errors.AsType[unsure](err); maybe && !s.engine.refused(err) {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeUnsure,
			Message: "the database did not answer to a commit: it was done, or not", Err: err,
			Hint: "look before you try again; requests with an idempotency key may be repeated"}
	}
	if s.engine.lost(err) {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: "the database does not answer", Err: err,
			Hint: "see whether it runs; what runs on the hosts goes on without it"}
	}
	return &farm.Error{Kind: farm.Internal, Code: CodeStoreFailed, Message: "the database refused a statement",
		Err: err, Hint: "see the server's log; grange server check looks at the database"}
}

func full(err error) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: CodeStoreFull, Message: "the disk of the database is full",
		Err: err, Hint: "make room there; nothing of this request was done"}
}

func taken(message, hint string) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeTaken, Message: message, Hint: hint}
}
