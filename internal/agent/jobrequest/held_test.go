package jobrequest

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestHeld(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		held Held
		want farm.Code
	}{
		"the first":                     {Held{0, 10, 100 * mib, 100 * mib}, ""},
		"one that is large alone":       {Held{0, 10, 300 * mib, 300 * mib}, ""},
		"too much of a user":            {Held{1, 10, 257 * mib, 257 * mib}, farm.CodeTooManyBytes},
		"too many of a user":            {Held{10, 10, 1, 1}, farm.CodeTooManyJobs},
		"too much of all":               {Held{1, 10, 17 * mib, 1025 * mib}, farm.CodeTooManyBytes},
		"little beside too much of all": {Held{1, 10, 16 * mib, 1025 * mib}, ""},
	} {
		if err := c.held.Check(); c.want == "" && err != nil || c.want != "" && !farm.IsCode(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
