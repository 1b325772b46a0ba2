package rlimits

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Memory is the least limit of memory on the way from the process's cgroup to the root, in version 1 and version 2
// hierarchies.
func Memory(files fs.FS, pid int) farm.Bytes {
	text, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return 0
	}
	var least farm.Bytes
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var roots []string
		file := "memory.limit_in_bytes"
		switch {
		case parts[0] == "0" && parts[1] == "":
			roots, file = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, "memory.max"
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			roots = []string{"sys/fs/cgroup/memory"}
		}
		for _, root := range roots {
			for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
				if limit := readLimit(files, filepath.Join(root, dir, file)); limit > 0 &&
					(least == 0 || limit < least) {
					least = limit
				}
				if dir == "/" {
					break
				}
			}
		}
	}
	return least
}

// readLimit reads one limit; 0 means none. "No limit" is "max" in version 2 and a number near 2^63 in version 1.
func readLimit(files fs.FS, path string) farm.Bytes {
	text, err := fs.ReadFile(files, path)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || v >= 1<<60 {
		return 0
	}
	return farm.Bytes(v)
}
