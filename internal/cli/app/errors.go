package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
)

// Usage is the error of a command line that makes no sense.
func Usage(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// PrintError prints two lines: what, with the code that docs/errors.md explains, and what to try.
func PrintError(w io.Writer, err error) {
	err = disk.NoSpace(err)
	message, hint := Explain(err)
	first, rest, more := strings.Cut(message, "\n") // the end of a console may follow
	first = output.Visible(first)
	if code := CodeOf(err); code != "" {
		first += " [" + code + "]"
	}
	fmt.Fprintf(w, "grange: %s\n", first)
	if more {
		// a path with a line break is no line of ours
		fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(output.Visible(rest), "\n", "\n    "))
	}
	if hint != "" {
		fmt.Fprintf(w, "  try: %s\n", output.Visible(hint))
	}
}

// Explain returns what an error says, and what to try.
func Explain(err error) (message, hint string) {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return problem.Detail, problem.Hint
	case errors.As(err, &own):
		return err.Error(), own.Hint
	}
	if own := serverError(err); own != nil {
		return own.Message, own.Hint
	}
	if own := agentError(err); own != nil {
		return own.Message, own.Hint
	}
	return err.Error(), ""
}

// agentError is why a request has no answer, without the means by which it was sent; nil where err is something else.
func agentError(err error) *farm.Error {
	request := new(url.Error)
	if !errors.As(err, &request) || errors.Is(err, context.Canceled) {
		return nil
	}
	own := &farm.Error{Kind: farm.Unavailable, Code: CodeNoAgent,
		Message: "the agent did not answer: " + request.Err.Error(),
		Hint:    "see whether it runs, and its log: journalctl -u grange-agent", Err: err}
	if !errors.Is(err, api.ErrNoAgent) {
		return own
	}
	own.Message, own.Hint = api.ErrNoAgent.Error(), "start it with `grange agent`, or name its socket with --socket"
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Addr != nil {
		own.Message += " on " + dial.Addr.String()
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		own.Message += ": " + errno.Error()
	}
	if errors.Is(err, syscall.EACCES) {
		own.Hint = "ask the host's administrator for access to the agent's socket"
	}
	return own
}

// CodeOf is the error's code; empty for what has none.
func CodeOf(err error) string {
	problem, own := new(api.Problem), new(farm.Error)
	switch {
	case errors.As(err, &problem):
		return strings.TrimPrefix(problem.Type, "grange:")
	case errors.As(err, &own):
		return string(own.Code)
	}
	if own := serverError(err); own != nil {
		return string(own.Code)
	}
	if own := agentError(err); own != nil {
		return string(own.Code)
	}
	return ""
}
