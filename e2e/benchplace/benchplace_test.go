package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestMeasure: the measurement itself works, however busy the machine is; what it finds is not judged.
func TestMeasure(t *testing.T) {
	s := settings{dir: t.TempDir(), window: 32, refill: 8, share: 0.5, seconds: 0.8}
	f, err := measure(t.Context(), s, 20, "")
	if err != nil {
		t.Fatal(err)
	}
	if f.Rate <= 0 || f.PerCPU <= 0 || f.One.P99 < f.One.P50 || f.All.P50 <= 0 || f.Commits == 0 ||
		f.Placed < f.Commits || f.first <= 0 || f.best <= 0 || f.RSS <= 0 {
		t.Errorf("%+v", f)
	}
}
