package imagesource

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestWithin: what does not return is left behind.
func TestWithin(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	_, err := within(t.Context(), time.Millisecond, func() (int, error) { <-never; return 1, nil })
	if !errors.Is(err, errHangs) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = within(ctx, time.Hour, func() (int, error) { <-never; return 1, nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f := &boundedFile{t.Context(), io.NopCloser(strings.NewReader("text"))}
	if b, err := io.ReadAll(f); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
