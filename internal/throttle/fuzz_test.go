package throttle

import (
	"testing"
	"time"
)

// FuzzBuckets: in whatever order events come, and time goes, no bucket takes more than its size and what leaked, and
// none is lost count of.
func FuzzBuckets(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 200, 0, 0}, byte(2))
	f.Add([]byte{1, 2, 3, 255, 1, 255, 255, 1}, byte(1))
	f.Fuzz(func(t *testing.T, steps []byte, size byte) {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		began := now
		b := &Buckets{Size: int(size%5) + 1, Leak: time.Second, Now: func() time.Time { return now }}
		taken, asked, reported, pending := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
		for _, step := range steps {
			if step >= 128 {
				now = now.Add(time.Duration(step-127) * 20 * time.Millisecond)
				continue
			}
			key := string(rune('a' + step%3))
			room, dropped := b.Add(key)
			asked[key]++
			if room {
				taken[key]++
				reported[key] += dropped
				pending[key] = 0
			} else {
				pending[key]++
			}
			if most := b.Size + int(now.Sub(began)/b.Leak); taken[key] > most {
				t.Fatalf("%d events of %d in %v", taken[key], most, now.Sub(began))
			}
			if asked[key] != taken[key]+reported[key]+pending[key] {
				t.Fatalf("%d events, %d of them taken, %d reported as dropped, %d pending", asked[key], taken[key],
					reported[key], pending[key])
			}
		}
	})
}
