package apiserver

import (
	"context"
	"time"

	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
)

// whileKnown is ctx until what the caller showed holds no more: its session has ended, its token was taken back, its
// user is disabled. An answer may go on for days, and is not to outlive that. What the caller may do is not looked at.
func whileKnown(ctx context.Context, people *authn.Authenticator, every time.Duration) (context.Context,
	context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	shown := shownOf(ctx)
	go func() {
		defer cancel()
		again := time.NewTicker(every)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				_, err := people.Identify(ctx, shown)
				if farm.IsKind(err, farm.Denied) || farm.IsCode(err, farm.CodeTooManyTries) {
					return
				}
			}
		}
	}()
	return ctx, cancel
}
