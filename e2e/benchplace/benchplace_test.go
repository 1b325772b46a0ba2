package main

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The measurement itself works; what it finds is not judged.
func TestMeasure(t *testing.T) {
	s := settings{dir: t.TempDir(), window: 32, refill: 8, share: 0.5, seconds: 0.2, tick: 10 * time.Millisecond}
	f, err := measure(t.Context(), s, 20, "")
	if err != nil {
		t.Fatal(err)
	}
	if f.rate <= 0 || f.perCPU <= 0 || f.p99 < f.p50 || f.commits == 0 || f.placed < f.commits || f.first <= 0 || f.best <= 0 || f.rss <= 0 {
		t.Errorf("%+v", f)
	}
}
