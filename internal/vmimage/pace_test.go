package vmimage

import (
	"context"
	"os"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestPace: all bytes of a download wait for their turn, and not those that lay there.
func TestPace(t *testing.T) {
	sum := 0
	pace := Pace(func(_ context.Context, n int) error { sum += n; return nil })
	came := pace.Follow(t.Context())
	for _, done := range []int64{50 * copyBlock, 51 * copyBlock, 51*copyBlock + 7, 51*copyBlock + 7, copyBlock / 2} {
		came(done)
	}
	if want := 2*copyBlock + 7; sum != want { // the last began anew
		t.Errorf("%d bytes waited, not %d", sum, want)
	}
	Pace(nil).Follow(t.Context())(1 << 30)

	s, file := testStore(t), rawDisk(t, "paced")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	sum = 0
	SetPace(s, pace)
	if _, err := s.Fetch(t.Context(), FetchOptions{Name: "it", Source: file}); err != nil {
		t.Fatal(err)
	}
	if farm.Bytes(sum) != farm.Bytes(info.Size()) {
		t.Errorf("%d bytes waited of %d", sum, info.Size())
	}
}
