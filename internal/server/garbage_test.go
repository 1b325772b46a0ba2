package server

import "testing"

func TestGarbagePercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 200}, {10 << 20, 200}, {100 << 20, 200}, {128 << 20, 150}, {160 << 20, 100}, {200 << 20, 60}, {240 << 20, 30}, {320 << 20, 30}, {1 << 30, 30}, {1 << 62, 30}} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}
