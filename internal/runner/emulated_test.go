package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFirstOfDay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grange", "emulated-host")
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		first bool
	}{{0, true}, {time.Second, false}, {23 * time.Hour, false}, {25 * time.Hour, true}, {26 * time.Hour, false},
		{-time.Hour, true}} { // a clock that was set back
		if got := firstOfDay(path, now.Add(c.after)); got != c.first {
			t.Errorf("after %v: %t", c.after, got)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // no place for it
		if !firstOfDay(filepath.Join(file, "emulated"), now) || !firstOfDay("", now) {
			t.Error("not told")
		}
	}
}
