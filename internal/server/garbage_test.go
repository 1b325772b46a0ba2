package server

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 200}, {10 << 20, 200}, {48 << 20, 200}, {64 << 20, 150}, {96 << 20, 100}, {192 << 20, 50}, {1 << 30, 30}, {1 << 62, 30}} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}
