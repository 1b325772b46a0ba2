package farm

import (
	"math/rand/v2"
	"testing"
)

// TestGuestWithin: what fits, fits; one MiB more does not.
func TestGuestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		limit, vcpus, emulated := Bytes(r.Uint64N(uint64(8*TiB)>>r.IntN(20))), 1+r.IntN(256), r.IntN(2) == 0
		guest := GuestWithin(limit, vcpus, emulated)
		if guest%MiB != 0 || guest > 0 && guest+Need(guest, vcpus, emulated) > limit {
			t.Fatalf("limit %v, %d vCPUs: guest %v with %v of its own", limit, vcpus, guest,
				Need(guest, vcpus, emulated))
		}
		if more := guest + MiB; more+Need(more, vcpus, emulated) <= limit {
			t.Fatalf("limit %v, %d vCPUs: guest %v, and %v would fit", limit, vcpus, guest, more)
		}
	}
	for _, c := range []struct {
		limit Bytes
		vcpus int
		tcg   bool
		want  Bytes
	}{
		{0, 1, false, 0}, {80 * MiB, 1, false, 0}, {2 * GiB, 1, false, 1960 * MiB}, {2 * GiB, 1, true, 1896 * MiB},
		{64 * GiB, 32, false, 64954 * MiB},
	} {
		if got := GuestWithin(c.limit, c.vcpus, c.tcg); got != c.want {
			t.Errorf("limit %v, %d vCPUs: guest %v (%d MiB), want %v", c.limit, c.vcpus, got, got/MiB, c.want)
		}
	}
}
