package lazyregexp

import "testing"

// TestNew: a pattern that is none is found by the tests of its package, whether they use it or not.
func TestNew(t *testing.T) {
	if r := New(`^a+$`); !r.MatchString("aaa") || r.MatchString("ab") {
		t.Error("a pattern matches otherwise than regexp's")
	}
	defer func() {
		if recover() == nil {
			t.Error("a pattern that is none was taken")
		}
	}()
	New(`(`)
}
