package machine

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func TestPagesThatAreMounted(t *testing.T) {
	any := []farm.Bytes{farm.GiB, 2 * farm.MiB, 0}
	for name, c := range map[string]struct {
		mounts      string
		sizes, want []farm.Bytes
	}{
		"nothing mounted": {"proc /proc proc rw 0 0\n", any, []farm.Bytes{0}},
		"2 MiB": {"hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n", any,
			[]farm.Bytes{2 * farm.MiB, 0}},
		"both": {"h /a hugetlbfs rw,pagesize=2M 0 0\nh /b hugetlbfs rw,pagesize=1024M 0 0\n", any,
			any},
		"an old kernel":          {"h /a hugetlbfs rw 0 0\n", any, []farm.Bytes{2 * farm.MiB, 0}},
		"one size stays":         {"", []farm.Bytes{farm.GiB}, []farm.Bytes{farm.GiB}},
		"none of several stays":  {"", []farm.Bytes{farm.GiB, 2 * farm.MiB}, []farm.Bytes{farm.GiB, 2 * farm.MiB}},
		"ordinary pages are":     {"", nil, nil},
		"a mount without fields": {"hugetlbfs\n", any, []farm.Bytes{0}},
	} {
		fsys := fstest.MapFS{"proc/self/mounts": {Data: []byte(c.mounts)}}
		if got := MountedPages(c.sizes, PageMounts(fsys)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
