package inside

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/guest"
)

func TestReadLoad(t *testing.T) {
	const stat = "cpu  100 1 50 800 40 2 3 4 70 0\ncpu0 100 1 50 800 40 2 3 4 70 0\nintr 1\n"
	const vmstat = "nr_free_pages 7\npswpin 11\npswpout 12\nzswpin 99\n"
	for name, c := range map[string]struct {
		stat, vmstat string
		want         *guest.Load
	}{
		"all":     {stat, vmstat, &guest.Load{CPU: 1000, Wait: 40, SwapIn: 11, SwapOut: 12}},
		"no swap": {stat, "nr_free_pages 7\n", &guest.Load{CPU: 1000, Wait: 40}},
		"old":     {"cpu 10 0 10 70 10\n", "", &guest.Load{CPU: 100, Wait: 10}},
		"none":    {"", vmstat, nil},
		"broken":  {"cpu a b c d e f\n", vmstat, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{"proc/stat": {Data: []byte(c.stat)}, "proc/vmstat": {Data: []byte(c.vmstat)}}
			if d := cmp.Diff(c.want, readLoad(fsys)); d != "" {
				t.Error(d)
			}
		})
	}
	if got := readLoad(fstest.MapFS{}); got != nil {
		t.Error(got)
	}
}
