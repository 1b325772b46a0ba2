package config

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestMinimum(t *testing.T) {
	for text, want := range map[string]Minimum{
		"":                          {farm.GiB, 256 * farm.MiB},
		"[minimum]\ndisk = \"20G\"": {20 * farm.GiB, 256 * farm.MiB},
		"[minimum]\ndisk = \"0\"\nmemory = \"2G\"": {0, 2 * farm.GiB},
	} {
		if a, err := ParseAgent([]byte(text), "x"); err != nil || a.Minimum != want {
			t.Errorf("%q: %+v %v", text, a.Minimum, err)
		}
	}
	if _, err := ParseAgent([]byte("[minimum]\nmemory = \"much\""), "x"); err == nil ||
		!strings.Contains(err.Error(), "minimum.memory") {
		t.Errorf("%v", err)
	}
}
