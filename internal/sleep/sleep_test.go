package sleep_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/sleep"
)

func TestFor(t *testing.T) {
	if err := sleep.For(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	why := errors.New("the agent stops")
	time.AfterFunc(time.Millisecond, func() { end(why) })
	if err := sleep.For(ctx, 24*time.Hour); !errors.Is(err, why) {
		t.Errorf("%v, not why the context ended", err)
	}
}
