package gatewaytest

import (
	"strings"
	"testing"
)

// TestJudge: a declaration is held in both directions.
func TestJudge(t *testing.T) {
	g := Gateway{Lacks: map[string]Lack{"locks": {Why: "it has none", Seen: "both have"}, "rights": {}}}
	for _, c := range []struct {
		feature string
		must    bool
		failed  []string
		want    string
	}{
		{feature: "mmap"},
		{feature: "mmap", failed: []string{"broken"}, want: "broken"},
		{feature: "locks", failed: []string{"both have the lock"}},
		{feature: "locks", failed: []string{"both have the lock", "EIO"}, want: "not as declared (both have): EIO"},
		{feature: "locks", want: "it is kept, and declared as lacking: it has none"},
		{feature: "rights", must: true, failed: []string{"broken"}, want: "no gateway may lack this"},
	} {
		if got := strings.Join(g.judge(feature{name: c.feature, must: c.must}, c.failed), "; "); got != c.want {
			t.Errorf("%s, %q: %q, not %q", c.feature, c.failed, got, c.want)
		}
	}
}

// TestFeatures: each has a name of its own, and a phrase that fits into the table.
func TestFeatures(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range features {
		if seen[f.name] || f.test == nil || f.means == "" || strings.ContainsAny(f.means, "|\n") {
			t.Errorf("%s: %q", f.name, f.means)
		}
		seen[f.name] = true
	}
}
