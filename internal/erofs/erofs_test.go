package erofs

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	goerofs "github.com/erofs/go-erofs"
)

// golden is the digest of the file system that tree makes: it changes when images made anew get other digests.
const golden = "80c563b87c881123cdd00f9ae01b3960f402b9fb911fad541597dd3133742fb8"

func dir(children map[string]*Node) *Node {
	return &Node{Mode: TypeDir | 0o755, Children: children}
}

func write(t *testing.T, name string, fill func(w *Writer) *Node) (*os.File, int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := NewWriter(f)
	size, err := w.Finish(fill(w), 1700000000)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != size || size%blockSize != 0 {
		t.Fatalf("%v %d: %v", info.Size(), size, err)
	}
	return f, size
}

func file(t *testing.T, w *Writer, content string) *Node {
	t.Helper()
	n := &Node{Mode: TypeRegular | 0o644}
	if err := w.Content(n, strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return n
}

var big = strings.Repeat("0123456789abcdef", 10000) + strings.Repeat("\x00", 100000) + "end"

func tree(t *testing.T) func(w *Writer) *Node {
	return func(w *Writer) *Node {
		hello := file(t, w, "hello\n")
		hello.UID, hello.GID, hello.Mode, hello.MTime, hello.Nano = 70000, 12, TypeRegular|0o4755, 1234567890, 5
		hello.Xattrs = map[string]string{"user.a": "b", "security.capability": strings.Repeat("c", 20)}
		many := map[string]*Node{}
		for i := range 1000 {
			many[fmt.Sprintf("file with a rather long name %04d", i)] = file(t, w, fmt.Sprint(i))
		}
		attrs := dir(nil)
		attrs.Xattrs = map[string]string{"user.large": strings.Repeat("x", 9000)}
		return dir(map[string]*Node{
			"bin":  dir(map[string]*Node{"hello": hello, "also": hello}),
			"big":  file(t, w, big),
			"many": dir(many), "empty": file(t, w, ""), "attrs": attrs,
			"link": {Mode: TypeSymlink | 0o777, Target: "../../etc/passwd"},
			"long": {Mode: TypeSymlink | 0o777, Target: strings.Repeat("d/", 2047)},
			"pipe": {Mode: TypeFIFO | 0o600},
		})
	}
}

// TestReadBack reads what was written with a reader that others wrote.
func TestReadBack(t *testing.T) {
	f, size := write(t, "a", tree(t))
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != golden {
		t.Errorf("the digest is %s", got)
	}
	fsys, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name, want string) {
		t.Helper()
		if b, err := fs.ReadFile(fsys, name); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	read("big", big)
	read("empty", "")
	for i := range 1000 {
		read(fmt.Sprintf("many/file with a rather long name %04d", i), fmt.Sprint(i))
	}
	for _, name := range []string{"bin/hello", "bin/also"} {
		read(name, "hello\n")
		info, err := fs.Stat(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		s := info.Sys().(*goerofs.Stat)
		if s.UID != 70000 || s.GID != 12 || s.Nlink != 2 || s.Mtime != 1234567890 || s.MtimeNs != 5 ||
			s.Mode&(fs.ModeSetuid|0o777) != fs.ModeSetuid|0o755 || s.Xattrs["user.a"] != "b" ||
			len(s.Xattrs["security.capability"]) != 20 {
			t.Errorf("%s: %+v %v", name, s, s.Mode)
		}
	}
	links := fsys.(interface{ ReadLink(string) (string, error) })
	for name, want := range map[string]string{"link": "../../etc/passwd", "long": strings.Repeat("d/", 2047)} {
		if got, err := links.ReadLink(name); err != nil || got != want {
			t.Errorf("%s: %.100q, %v", name, got, err)
		}
	}
	entries, err := fs.ReadDir(fsys, "many")
	if err != nil || len(entries) != 1000 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if info, err := fs.Stat(fsys, "attrs"); err != nil ||
		len(info.Sys().(*goerofs.Stat).Xattrs["user.large"]) != 9000 {
		t.Errorf("%v %v", info, err)
	}
}

// TestPlaces: wherever an inode comes to lie, what lies behind it is in one block.
func TestPlaces(t *testing.T) {
	for n := range 300 {
		children := map[string]*Node{}
		for i := range 20 {
			name := fmt.Sprintf("%0*d", 1+n%200, i)
			children[name] = &Node{Mode: TypeSymlink | 0o777, Target: strings.Repeat("t", 1+(i*517+n*91)%4095),
				Xattrs: map[string]string{"user.x": strings.Repeat("v", (i*n)%5000)}}
		}
		f, _ := write(t, "f", func(*Writer) *Node { return dir(map[string]*Node{"d": dir(children)}) })
		fsys, err := goerofs.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range children {
			got, err := fsys.(interface{ ReadLink(string) (string, error) }).ReadLink("d/" + name)
			if err != nil || got != c.Target {
				t.Fatalf("round %d: %s: %d bytes of %d, %v", n, name, len(got), len(c.Target), err)
			}
			if at := (c.nid*slotSize + inodeSize + c.xattrSize()) % blockSize; at+c.tail > blockSize {
				t.Fatalf("round %d: %s crosses a block", n, name)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	w := NewWriter(&discard{})
	again := dir(nil)
	for name, root := range map[string]*Node{
		"a file": {Mode: TypeRegular}, "a slash": dir(map[string]*Node{"a/b": dir(nil)}),
		"dots":      dir(map[string]*Node{"..": dir(nil)}),
		"long":      dir(map[string]*Node{strings.Repeat("n", 256): dir(nil)}),
		"two names": dir(map[string]*Node{"a": again, "b": again}),
		"target":    dir(map[string]*Node{"a": {Mode: TypeSymlink, Target: strings.Repeat("t", 4096)}}),
		"attribute": dir(map[string]*Node{"a": {Mode: TypeRegular, Xattrs: map[string]string{"trusted.x": ""}}}),
	} {
		if _, err := w.Finish(root, 0); err == nil {
			t.Error(name)
		}
	}
	if err := w.Content(&Node{}, strings.NewReader("short"), 6); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}

type discard struct{}

func (*discard) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
