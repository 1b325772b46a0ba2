package gateway

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// testFS is a bind as a guest's kernel sees it. With stepwise, this host's kernel is taken for one without openat2.
func testFS(t testing.TB, dir string, readOnly, stepwise bool) fuse.RawFileSystem {
	return testFSWith(t, dir, Options{ReadOnly: readOnly}, stepwise)
}

func testFSWith(t testing.TB, dir string, o Options, stepwise bool) fuse.RawFileSystem {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if d.stepwise {
		t.Log("this kernel has no openat2")
	}
	d.stepwise = d.stepwise || stepwise
	return fileSystem(&bound{d, o})
}
