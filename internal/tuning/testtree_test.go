package tuning

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// archive is a txtar file: a comment, and files by name. The format is that of golang.org/x/tools/txtar: each file
// begins with a line "-- name --".
type archive struct {
	comment string
	files   map[string]string
}

func readArchive(t testing.TB, path string) archive {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := archive{files: map[string]string{}}
	name := ""
	for line := range strings.Lines(string(text)) {
		if inner, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(inner, " --\n") {
			name = strings.TrimSpace(strings.TrimSuffix(inner, " --\n"))
			if _, twice := a.files[name]; twice {
				t.Fatalf("%s has %s twice", path, name)
			}
			a.files[name] = ""
			continue
		}
		if name == "" {
			a.comment += line
		} else {
			a.files[name] += line
		}
	}
	return a
}

// under is the files below a directory of the archive, with their names from there.
func (a archive) under(dir string) map[string]string {
	out := map[string]string{}
	for name, text := range a.files {
		if below, ok := strings.CutPrefix(name, dir+"/"); ok {
			out[below] = text
		}
	}
	return out
}

// removed is the whole text of a file that takes another one away.
const removed = "-\n"

// overlay lays files over a base: "-" alone removes a file, or everything below a directory of that name.
func overlay(base, over map[string]string) map[string]string {
	out := maps.Clone(base)
	for name, text := range over {
		if text == removed {
			maps.DeleteFunc(out, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
		}
	}
	for name, text := range over {
		if text != removed {
			out[name] = text
		}
	}
	return out
}

func treeOf(files map[string]string) fs.FS {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// write writes the archive anew: the old text with one file put in place of the one of that name, or at the end.
func (a archive) write(t testing.TB, path, name, text string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := []byte("-- " + name + " --\n")
	start := bytes.Index(old, head)
	if start < 0 {
		start = len(old)
	}
	end := len(old)
	if next := bytes.Index(old[min(start+len(head), end):], []byte("\n-- ")); start < end && next >= 0 {
		end = start + len(head) + next + 1
	}
	if next := start + len(head); start < len(old) && bytes.HasPrefix(old[next:], []byte("-- ")) {
		end = next
	}
	out := bytes.Join([][]byte{old[:start], head, []byte(text), old[end:]}, nil)
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
}
