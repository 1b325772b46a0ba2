package container

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/erofs"
)

// TestLinksOfHiddenFiles: a layer hides a name of a file of a lower layer and gives the file another one, in any order.
func TestLinksOfHiddenFiles(t *testing.T) {
	ref := serve(t, nil)
	low := tarOf(t, file("d/x", "content"), file("d/other", "gone"), file("old/deep/x", "content"))
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
	}
	dir := tar.Header{Name: "d", Typeflag: tar.TypeDir}
	for name, test := range map[string]struct {
		layer []tar.Header
		want  string // the file that must be there
		gone  string
	}{
		"opaque after":         {[]tar.Header{link("d/y", "d/x"), file("d/.wh..wh..opq", "")}, "d/y", "d/x"},
		"opaque before":        {[]tar.Header{dir, file("d/.wh..wh..opq", ""), link("d/y", "d/x")}, "d/y", "d/other"},
		"directory comes last": {[]tar.Header{link("d/y", "d/x"), dir, file("d/.wh..wh..opq", "")}, "d/y", "d/x"},
		"whiteout before":      {[]tar.Header{file("d/.wh.x", ""), link("d/y", "d/x")}, "d/y", "d/x"},
		"whiteout after":       {[]tar.Header{link("d/y", "d/x"), file("d/.wh.x", "")}, "d/y", "d/x"},
		"the directory hidden": {[]tar.Header{file(".wh.old", ""), link("new/x", "old/deep/x")}, "new/x", "old"},
		"hidden from above":    {[]tar.Header{link("new/x", "old/deep/x"), file(".wh..wh..opq", "")}, "new/x", "old"},
		"a link to a link": {[]tar.Header{file(".wh.old", ""), link("a", "old/deep/x"), link("b", "a"),
			file(".wh.a", "")}, "b", "old"},
		"its new name hidden below": {[]tar.Header{link("d/other", "d/x"), file("d/.wh.other", "")}, "d/other", "old/x"},
		"its directory replaced":    {[]tar.Header{file("old", "a file"), link("x", "old/deep/x")}, "x", "old/deep"},
	} {
		image := imageOf(t, packed(t, "tar", low), packed(t, "gzip", tarOf(t, test.layer...)))
		push(t, ref("hidden/image"), image)
		got, err := fetch(t, ref("hidden/image"), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := fs.ReadFile(got.fs, test.want); string(b) != "content" {
			t.Errorf("%s: %q, %v; there is %q", name, b, err, list(t, got.fs))
		}
		if _, err := fs.Stat(got.fs, test.gone); err == nil {
			t.Errorf("%s: %s is there", name, test.gone)
		}
	}
}

// model is a file system as a map from paths to contents, by the image specification: a layer's whiteouts hide what
// lower layers have, wherever they stand in it; its entries come over what is left, in their order.
type model map[string]string

const isDir = "directory"

func (m model) remove(name string) {
	maps.DeleteFunc(m, func(p, _ string) bool { return p == name || strings.HasPrefix(p, name+"/") })
}

func (m model) put(name, content string) {
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if m[d] != isDir {
			m[d] = isDir
		}
	}
	if content != isDir || m[name] != isDir {
		m.remove(name)
	}
	m[name] = content
}

// apply returns the file system with one more layer; false: a link names no file, or a name is a directory and then
// another file, which no difference of two directories is.
func (m model) apply(layer int, entries []tar.Header) (model, bool) {
	low, now, directories := m, maps.Clone(m), map[string]bool{}
	for _, h := range entries {
		dir, base := path.Split(h.Name)
		switch name, hides := strings.CutPrefix(base, whiteout); {
		case base == opaque:
			maps.DeleteFunc(now, func(p, _ string) bool { return strings.HasPrefix(p, dir) })
		case hides:
			now.remove(dir + name)
		}
	}
	for i, h := range entries {
		for d := path.Dir(h.Name); d != "."; d = path.Dir(d) {
			directories[d] = true
		}
		if h.Typeflag == tar.TypeDir {
			directories[h.Name] = true
		} else if directories[h.Name] {
			return nil, false
		}
		switch h.Typeflag {
		case tar.TypeDir:
			now.put(h.Name, isDir)
		case tar.TypeLink:
			content := now[h.Linkname]
			if content == "" {
				content = low[h.Linkname]
			}
			if content == "" || content == isDir {
				return nil, false
			}
			now.put(h.Name, content)
		case tar.TypeReg:
			if !strings.HasPrefix(path.Base(h.Name), whiteout) {
				now.put(h.Name, fmt.Sprintf("%d.%d", layer, i))
			}
		}
	}
	return now, true
}

// randomLayer has links to files of lower layers only where there are some.
func randomLayer(r *rand.Rand, low model) []tar.Header {
	var files []string
	for _, p := range slices.Sorted(maps.Keys(low)) {
		if low[p] != isDir {
			files = append(files, p)
		}
	}
	name := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = string(rune('a' + r.IntN(3)))
		}
		return strings.Join(parts, "/")
	}
	entries := make([]tar.Header, 1+r.IntN(7))
	for i := range entries {
		h := tar.Header{Name: name(), Typeflag: tar.TypeReg}
		switch n := r.IntN(8); {
		case n < 3:
		case n < 4:
			h.Typeflag = tar.TypeDir
		case n < 6 && len(files) > 0:
			h.Typeflag, h.Linkname = tar.TypeLink, files[r.IntN(len(files))]
		case n < 7 && len(files) > 0:
			h.Name = path.Join(path.Dir(h.Name), whiteout+path.Base(h.Name))
		case len(files) > 0:
			h.Name = path.Join(path.Dir(h.Name), opaque)
		}
		entries[i] = h
	}
	return entries
}

// contents are the paths of a tree, as in a model.
func (t *tree) contents() model {
	all := model{}
	var walk func(dir string, n *erofs.Node)
	walk = func(dir string, n *erofs.Node) {
		for name, c := range n.Children {
			p := path.Join(dir, name)
			if c.Mode&erofs.TypeMask == erofs.TypeDir {
				all[p] = isDir
				walk(p, c)
			} else {
				all[p] = fmt.Sprintf("%d.%d", c.Origin.Layer, c.Origin.Index)
			}
		}
	}
	walk("", t.root)
	return all
}

// TestLayersAreAsTheModel compares random layers of files, links and whiteouts with the model.
func TestLayersAreAsTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 21))
	links := 0
	for run := range 10000 {
		tr, want := newTree(), model{}
		var said []string
		for layer := range 2 + r.IntN(2) {
			entries := randomLayer(r, want)
			next, ok := want.apply(layer, entries)
			if !ok {
				break
			}
			tr.begin(int32(layer))
			for i, h := range entries {
				if layer > 0 && h.Typeflag == tar.TypeLink {
					links++
				}
				said = append(said, fmt.Sprintf("%d.%d %c %s %s", layer, i, h.Typeflag, h.Name, h.Linkname))
				if err := tr.add(int32(i), &h); err != nil {
					t.Fatalf("run %d: %v\n%s", run, err, strings.Join(said, "\n"))
				}
			}
			want = next
			if got := tr.contents(); !maps.Equal(got, want) {
				t.Fatalf("run %d: there is %v, not %v\n%s", run, got, want, strings.Join(said, "\n"))
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d hard links were tried", links)
	}
}
