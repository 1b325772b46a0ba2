package daemon

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestLimitMemory: the machine's memory is a limit, and not where the administrator has set one.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	for _, env := range []string{"1GiB", ""} {
		t.Setenv("GOMEMLIMIT", env)
		limitMemory()
		if limit := debug.SetMemoryLimit(-1); limit <= 0 || (limit == math.MaxInt64) != (env != "") {
			t.Errorf("GOMEMLIMIT=%s: %d bytes", env, limit)
		}
	}
}
