package rlimits

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func TestMemory(t *testing.T) {
	files := func(pairs ...string) fs.ReadFileFS {
		m := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return m
	}
	for name, c := range map[string]struct {
		files fs.ReadFileFS
		want  farm.Bytes
	}{
		"none":      {files(), 0},
		"unlimited": {files("proc/7/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n"), 0},
		"version 2": {files("proc/7/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "2147483648\n"),
			2 * farm.GiB},
		"a parent's is less": {files("proc/7/cgroup", "0::/slurm/job/step\n", "sys/fs/cgroup/slurm/job/step/memory.max",
			"max\n", "sys/fs/cgroup/slurm/job/memory.max", "1073741824\n", "sys/fs/cgroup/slurm/memory.max",
			"4294967296\n"), farm.GiB},
		"version 1": {files("proc/7/cgroup", "5:cpu,memory:/x\n0::/\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "536870912\n"), 512 * farm.MiB},
		"version 1, unlimited": {files("proc/7/cgroup", "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes",
			"9223372036854771712\n"), 0},
		"hybrid": {files("proc/7/cgroup", "5:memory:/x\n0::/y\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes",
			"536870912\n", "sys/fs/cgroup/unified/y/memory.max", "268435456\n"), 256 * farm.MiB},
		"a path that climbs": {files("proc/7/cgroup", "0::/../../a\n", "sys/fs/cgroup/a/memory.max", "1048576\n"),
			farm.MiB},
	} {
		if got := Memory(c.files, 7); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
