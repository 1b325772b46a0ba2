package tuning

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestPagesOfOneSize judges transparent huge pages by the word of their size, where it has one.
func TestPagesOfOneSize(t *testing.T) {
	for _, c := range []struct {
		all, size, profile string
		want               Severity // 0: quiet
		changes            int
	}{
		{"always", "", "", 0, 0},
		{"always", "inherit", "", 0, 0},
		{"always", "never", "", Warning, 2},
		{"never", "inherit", "", Warning, 1},
		{"never", "madvise", "", 0, 0},
		{"never", "madvise", "madvise", 0, 0},
		{"always", "madvise", "always", Advice, 2},
	} {
		h := farm.HostFacts{THP: farm.THP{Enabled: c.all, SizeEnabled: c.size}}
		found := checkTHPPolicy(h, Profile{THP: c.profile})
		if len(found) == 0 {
			if c.want != 0 {
				t.Errorf("%+v: nothing found", c)
			}
			continue
		}
		if found[0].Severity != c.want || len(found[0].Changes) != c.changes {
			t.Errorf("%+v: found %+v", c, found)
		}
	}
}
