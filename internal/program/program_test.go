package program

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestStart(t *testing.T) {
	t.Setenv("GRANGE_SECRET", "ours")
	out, err := Start(t.Context(), Call{Path: "/bin/sh", Args: []string{"-c", "cat; env; pwd"}, Env: []string{"A=b"},
		Input: []byte("in\n")})
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, want := range []string{"in\n", "A=b\n", "LC_ALL=C\n", "TZ=UTC\n", "\n/\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if strings.Contains(text, "GRANGE_SECRET") {
		t.Error("our environment is handed on")
	}
}

func TestStartFails(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		call Call
		is   error
	}{
		{"no such program", t.Context(), Call{Path: "grange-no-such-program"}, exec.ErrNotFound},
		{"too long, and a child that keeps the output", t.Context(),
			Call{Path: "/bin/sh", Args: []string{"-c", "sleep 60 & sleep 60"}, Limit: 50 * time.Millisecond},
			ErrTooLong},
		{"too much", t.Context(), Call{Path: "/bin/sh", Args: []string{"-c", "while :; do echo much; done"},
			Output: 100}, ErrTooMuch},
		{"too much at once, and an end", t.Context(), Call{Path: "/bin/echo", Args: []string{"0123456789"}, Output: 5},
			ErrTooMuch},
		{"cancelled", cancelled, Call{Path: "/bin/true"}, context.Canceled},
	} {
		if _, err := Start(c.ctx, c.call); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := Start(t.Context(), Call{Path: "/bin/sh", Args: []string{"-c", "echo what went wrong >&2; exit 3"}})
	failed := new(Failed)
	if !errors.As(err, &failed) || failed.Status != 3 || failed.Said != "what went wrong" {
		t.Errorf("%#v", err)
	}
}
