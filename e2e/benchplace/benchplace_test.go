package main

import "testing"

// The measurement itself works; what it finds is not judged.
func TestMeasure(t *testing.T) {
	f, err := measure(t.Context(), settings{dir: t.TempDir(), window: 32, share: 0.5, seconds: 0.2}, 20, "")
	if err != nil {
		t.Fatal(err)
	}
	if f.rate <= 0 || f.p99 < f.p50 || f.commits == 0 || f.placed < f.commits || f.first <= 0 || f.best <= 0 {
		t.Errorf("%+v", f)
	}
}
