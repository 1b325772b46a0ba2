package hosttree

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/mounts/mountstest"
)

// TestMeasureHung: a local file system that one of a hung server lies over, or above, is not asked.
func TestMeasureHung(t *testing.T) {
	h := mountstest.Mount(t)
	here, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", h.Thread))
	if err != nil {
		t.Fatal(err)
	}
	line := func(point string) string { return "9 1 8:1 / " + point + " rw - ext4 /dev/sda1 rw\n" }
	table := line("/") + line(h.Dir) + string(here) + line(h.Dir+"/below") + line("/proc")
	var measured []FileSystem
	h.Do(func() { measured = measure(fstest.MapFS{"proc/self/mountinfo": {Data: []byte(table)}}) })
	var paths []string
	for _, f := range measured {
		paths = append(paths, f.Path)
	}
	if slices.Contains(paths, h.Dir) || slices.Contains(paths, h.Dir+"/below") || !slices.Contains(paths, "/") {
		t.Errorf("%q", paths)
	}
}
