package transfer

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
)

func errUnknown(digest chunk.Sum) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeUnknown,
		Message: fmt.Sprintf("nothing of %v is here", digest),
		Hint:    "see whether the server still has it: `grange image list`"}
}

func errMismatch(digest chunk.Sum) error {
	return &farm.Error{Kind: farm.Internal, Code: CodeMismatch,
		Message: fmt.Sprintf("all chunks of %v are here, and together they are another file", digest),
		Hint:    "the server's copy, or this host's disk, is damaged: verify both, and fetch it again"}
}

func errStalled(digest chunk.Sum, after time.Duration, why error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeStalled,
		Message: fmt.Sprintf("nothing more came of %v for %v", digest, after), Err: why,
		Hint: "see whether this host reaches the server, and other hosts at the port of [transfer] listen; what came " +
			"is kept, and the next try goes on with it"}
}

// errFull is of a directory whose file system has no space.
func errFull(dir string, err error) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull, Err: err,
		Message: "the file system of " + dir + " is full",
		Hint:    "free space there, remove unused images, or move the store; what came is kept"}
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
