package server

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 200}, {10 << 20, 200}, {85 << 20, 200}, {100 << 20, 150}, {128 << 20, 100}, {170 << 20, 50}, {200 << 20,
		30}, {256 << 20, 30}, {1 << 30, 30}, {1 << 62, 30}} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}
