package farm

import (
	"strings"
	"testing"
)

func TestTagFault(t *testing.T) {
	for key, good := range map[string]bool{"a": true, "rack": true, "A0": true, "a.b_c/d:e-f": true, "a--b": true,
		"": false, "-a": false, "a-": false, ".": false, "a b": false, "ä": false, "a\n": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false} {
		if fault := TagFault(map[string]string{key: "value"}); (fault == "") != good {
			t.Errorf("%q: %q", key, fault)
		}
	}
	for value, good := range map[string]bool{"": true, "two words, ä": true, "a\n": false, "\xff": false,
		strings.Repeat("v", 256): true, strings.Repeat("v", 257): false} {
		if fault := TagFault(map[string]string{"key": value}); (fault == "") != good {
			t.Errorf("value %q: %q", value, fault)
		}
	}
}
