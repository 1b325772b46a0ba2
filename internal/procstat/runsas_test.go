package procstat

import (
	"testing"
	"testing/fstest"
)

func TestRunsAs(t *testing.T) {
	files := fstest.MapFS{"proc/7/status": {Data: []byte("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5 5 5 5\n")},
		"proc/8/status": {Data: []byte("Name:\tUid: 1000\n")}}
	for _, c := range []struct {
		pid  int
		uid  uint32
		want bool
	}{{7, 1000, true}, {7, 0, true}, {7, 100, false}, {7, 5, false}, {8, 1000, false}, {9, 0, false}} {
		if got := RunsAs(files, c.pid, c.uid); got != c.want {
			t.Errorf("process %d runs as %d: %v", c.pid, c.uid, got)
		}
	}
}
