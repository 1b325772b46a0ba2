package runner

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestGroupLimits(t *testing.T) {
	for _, c := range []struct {
		given farm.Allotment
		want  bool
	}{
		{farm.Allotment{System: farm.Slurm, Memory: farm.GiB, Cgroups: []string{"a"}}, true},
		{farm.Allotment{System: farm.GridEngine, Memory: farm.GiB}, false},
		{farm.Allotment{System: farm.Slurm, Cgroups: []string{"a"}}, false},
	} {
		if got := groupLimits(c.given); got != c.want {
			t.Errorf("%+v: %v", c.given, got)
		}
	}
}
