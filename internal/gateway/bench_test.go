package gateway

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// BenchmarkSmallFiles makes, looks at, reads and removes a small file two directories down: what the host has to do for
// it, without the way to a VM and back.
func BenchmarkSmallFiles(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		b.Fatal(err)
	}
	k := kernel{testFS(b, dir, false, false), me()}
	parent := k.lookup(1, "a", "b")
	buf := make([]byte, 4096)
	check := func(s fuse.Status) {
		if !s.Ok() {
			b.Fatal(s)
		}
	}
	read := func(node, handle uint64) {
		result, s := k.raw.Read(nil, &fuse.ReadIn{InHeader: k.head(node), Fh: handle, Size: 4096}, buf)
		check(s)
		result.Bytes(buf)
		result.Done()
	}
	b.Run("create", func(b *testing.B) {
		for b.Loop() {
			var out fuse.CreateOut
			check(k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(parent), Flags: syscall.O_RDWR, Mode: 0o644}, "f",
				&out))
			_, s := k.raw.Write(nil, &fuse.WriteIn{InHeader: k.head(out.NodeId), Fh: out.Fh, Size: 4096}, buf)
			check(s)
			k.raw.Release(nil, &fuse.ReleaseIn{InHeader: k.head(out.NodeId), Fh: out.Fh})
			h := k.head(parent)
			check(k.raw.Unlink(nil, &h, "f"))
			k.raw.Forget(out.NodeId, 1)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "g"), buf, 0o644); err != nil {
		b.Fatal(err)
	}
	g := k.lookup(parent, "g")
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			k.raw.Forget(k.lookup(parent, "g"), 1)
			check(k.raw.GetAttr(nil, &fuse.GetAttrIn{InHeader: k.head(g)}, &fuse.AttrOut{}))
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			var out fuse.OpenOut
			check(k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(g)}, &out))
			read(g, out.Fh)
			k.raw.Release(nil, &fuse.ReleaseIn{InHeader: k.head(g), Fh: out.Fh})
		}
	})
}
