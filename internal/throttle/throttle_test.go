package throttle

import (
	"net/netip"
	"strconv"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	b := &Buckets{Size: 20, Leak: time.Second, Now: func() time.Time { return now }}
	for i := range 20 {
		if room, dropped := b.Add("a"); !room || dropped != 0 {
			t.Fatalf("event %d: %v, %d dropped", i, room, dropped)
		}
	}
	for range 100_000 {
		if room, _ := b.Add("a"); room {
			t.Fatal("a full bucket takes more")
		}
	}
	if room, _ := b.Add("b"); !room {
		t.Error("the bucket of another key is full, too")
	}
	now = now.Add(time.Second)
	if room, dropped := b.Add("a"); !room || dropped != 100_000 {
		t.Errorf("a moment later: %v, %d dropped", room, dropped)
	}
	if room, _ := b.Add("a"); room {
		t.Error("there was room for more than what had leaked")
	}
	now = now.Add(20 * time.Second)
	for range 20 {
		if room, _ := b.Add("a"); !room {
			t.Fatal("what was poured over a bucket counts")
		}
	}
}

func TestBucketsAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	b := &Buckets{Size: 2, Leak: time.Minute, Now: func() time.Time { return now }}
	for i := range 5 * maxKeys {
		now = now.Add(time.Millisecond)
		b.Add(strconv.Itoa(i))
		if len(b.buckets) > maxKeys {
			t.Fatalf("%d buckets", len(b.buckets))
		}
	}
}

func TestParty(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":        "192.0.2.1",
		"::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8::1":      "2001:db8::/64",
		"2001:db8::ffff":   "2001:db8::/64",
		"fe80::1%eth0":     "fe80::/64",
	} {
		if got := Party(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is of %s, not %s", address, got, want)
		}
	}
}
