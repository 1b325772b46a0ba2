// Package sleep waits for as long as a context lets it.
package sleep

import (
	"context"
	"time"
)

// For waits. Its error is why ctx ended meanwhile.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
