package machine

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// MountedPages leaves of several page sizes those that QEMU can have: libvirt finds huge pages by the hugetlbfs that is
// mounted for their size. One size alone is what somebody insists on, and stays.
func MountedPages(sizes, mounts []farm.Bytes) []farm.Bytes {
	there := slices.DeleteFunc(slices.Clone(sizes),
		func(s farm.Bytes) bool { return s != 0 && !slices.Contains(mounts, s) })
	if len(sizes) < 2 || len(there) == 0 {
		return sizes
	}
	return there
}

// PageMounts are the page sizes that have a hugetlbfs. Kernels before 4.13 do not say the size; it is the default one
// then.
func PageMounts(root fs.FS) []farm.Bytes {
	text, err := fs.ReadFile(root, "proc/self/mounts")
	if err != nil {
		return nil
	}
	var sizes []farm.Bytes
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "hugetlbfs" {
			continue
		}
		size := 2 * farm.MiB
		for option := range strings.SplitSeq(f[3], ",") {
			if value, ok := strings.CutPrefix(option, "pagesize="); ok {
				size, _ = farm.ParseBytes(value)
			}
		}
		sizes = append(sizes, size)
	}
	return sizes
}
