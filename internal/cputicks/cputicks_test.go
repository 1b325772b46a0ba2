package cputicks

import "testing"

func TestBusy(t *testing.T) {
	for line, want := range map[string]int64{"": 0, "cpu  1 2 4 1000 2000 8 16 32 3000 4000": 63, "cpu 1": 1} {
		if got := busy(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}
