package journal

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		var r Repeated
		r.Log(log, "look", nil)
		for range 1800 { // an hour
			r.Log(log, "look", errors.New("no bridge"))
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(text.String(), "no bridge"); n != 1 {
			t.Errorf("the same fault was logged %d times in an hour:\n%s", n, text.String())
		}
		r.Log(log, "look", errors.New("no bridge"))
		r.Log(log, "look", errors.New("other"))
		r.Log(log, "look", nil)
		r.Log(log, "look", nil)
		if n := strings.Count(text.String(), "\n"); n != 4 || !strings.Contains(text.String(), "times=1801") {
			t.Errorf("logged:\n%s", text.String())
		}
	})
}
