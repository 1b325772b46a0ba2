package batchtest

import (
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/batch"
)

// Recorded is a file of the package's testdata.
func Recorded(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Tree is a recorded host as a file system that a test can change. Scripts may be run.
func Tree(t testing.TB, dir string) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(string(text), "#!") {
			mode = 0o755
		}
		tree[name] = &fstest.MapFile{Data: text, Mode: mode}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// Spoil replaces old in a file of the tree by new; with old "" the file goes.
func Spoil(t testing.TB, tree fstest.MapFS, file, old, new string) {
	t.Helper()
	if old == "" {
		delete(tree, file)
		return
	}
	text := string(tree[file].Data)
	spoilt := strings.Replace(text, old, new, 1)
	if spoilt == text {
		t.Fatalf("%s has no %q", file, old)
	}
	tree[file] = &fstest.MapFile{Data: []byte(spoilt), Mode: tree[file].Mode}
}

// Findings are those of a check by their IDs. None comes twice, and each that is not good says why and what to do.
func Findings(t testing.TB, found []batch.Finding) map[string]batch.Finding {
	t.Helper()
	all := map[string]batch.Finding{}
	for _, f := range found {
		if _, twice := all[f.ID]; twice {
			t.Errorf("%s is found twice", f.ID)
		}
		all[f.ID] = f
		if f.Level != batch.Good && (f.Why == "" || f.Do == "" || f.Found == "") {
			t.Errorf("%s does not say why, or what to do: %+v", f.ID, f)
		}
	}
	return all
}

// Program is a file that is a program, and nothing else: a header, and one for the dynamic loader where it wants one.
func Program(dynamic bool) *fstest.MapFile {
	const header, program = 64, 56
	b := make([]byte, header+program)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], uint16(elf.ET_EXEC))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[32:], header) // of program headers
	le.PutUint16(b[52:], header)
	le.PutUint16(b[54:], program)
	le.PutUint16(b[56:], 1)
	le.PutUint32(b[header:], uint32(elf.PT_LOAD))
	if dynamic {
		le.PutUint32(b[header:], uint32(elf.PT_INTERP))
	}
	return &fstest.MapFile{Data: b, Mode: 0o755}
}
