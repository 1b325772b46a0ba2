package cloud

import (
	"context"
	"errors"
	"testing"
)

func TestFactsBeforeRecovery(t *testing.T) {
	h := New(Options{})
	errGone := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if _, err := h.Facts(ctx); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
}
