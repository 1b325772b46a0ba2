package app

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestSaidYes(t *testing.T) {
	for text, want := range map[string]bool{"y\n": true, "Yes\n": true, "yes": true, "n\n": false, "\n": false,
		"": false, "yesterday\n": false} {
		if saidYes(t.Context(), strings.NewReader(text)) != want {
			t.Errorf("%q is not %v", text, want)
		}
	}
	// ctrl-C while nobody answers.
	silent, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if saidYes(ctx, silent) {
		t.Error("ctrl-C is a yes")
	}
}
