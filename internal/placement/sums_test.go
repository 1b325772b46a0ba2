package placement

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestSums: what is free on a host that takes nothing is told apart.
func TestSums(t *testing.T) {
	f := town(2, farm.Cell{})
	if _, err := f.Claim(ask("a", 2)); err != nil {
		t.Fatal(err)
	}
	f.Refuse("h0", "closed", true)
	if s := f.Sums()["c"]; s.CPUs != 16 || s.Free != 14 || s.Refused != 6 {
		t.Errorf("%+v", s)
	}
}
