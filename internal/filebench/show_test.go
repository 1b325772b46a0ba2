package filebench

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestTable(t *testing.T) {
	results := Medians(append(phases(farm.FUSE, 1e6), phases(farm.Virtiofs, 2e6)...))
	m := Measurement{Command: "grange gateway bench", FileSystem: "ext4", Results: results[:9],
		Verdict: Recommend(results), Left: map[farm.Gateway]string{"nfs": "not installed"}}
	text := Table(m)
	for _, want := range []string{"GATEWAY", "DELETE", "1.0 MB/s", "3000000/s", "0.0/0.0", "nfs was not measured: not installed",
		"virtiofs is 2.00 times", "  -\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if svg := Picture([]Measurement{m}); strings.Count(svg, "<rect") != 10 {
		t.Error(svg)
	}
}
