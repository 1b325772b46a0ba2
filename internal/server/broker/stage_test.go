package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/grange-project/grange/internal/batch"
)

// Users write the names of images: those that most jobs wait for come first, and there is a most.
func TestMostWanted(t *testing.T) {
	got := mostWanted([]batch.Demand{{Jobs: 2, Image: "b"}, {Jobs: 9}, {Jobs: 3, Image: "c"}, {Jobs: 2, Image: "a"},
		{Jobs: 2, Image: "c"}})
	if want := []string{"c", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	many := []batch.Demand{{Jobs: 2, Image: "real"}}
	for i := range 10_000 {
		many = append(many, batch.Demand{Jobs: 1, Image: fmt.Sprint(i)})
	}
	if got := mostWanted(many); len(got) != stagedAtMost || got[0] != "real" {
		t.Errorf("%d images, %s first", len(got), got[0])
	}
}
