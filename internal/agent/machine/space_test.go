package machine

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func TestShort(t *testing.T) {
	for name, c := range map[string]struct {
		amount
		want string
	}{
		"enough":          {amount{"x", 2 * farm.GiB, true, farm.GiB}, ""},
		"just enough":     {amount{"x", farm.GiB, true, farm.GiB}, ""},
		"short":           {amount{"x", farm.GiB - 1, true, farm.GiB}, "x is short: 1023M free, the minimum is 1G"},
		"unknown":         {amount{"x", 0, false, farm.GiB}, ""},
		"does not matter": {amount{"x", 0, true, 0}, ""},
	} {
		if got := strings.Join(shortOf([]amount{c.amount}), ""); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, want := range map[string]farm.Bytes{"MemTotal: 5 kB\nMemAvailable:    2048 kB\n": 2 * farm.MiB,
		"MemTotal: 5 kB\n": 0, "": 0} {
		got, known := availableMemory(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}})
		if got != want || known != (want != 0) {
			t.Errorf("%q: %v %v", text, got, known)
		}
	}
}
