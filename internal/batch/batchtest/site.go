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

// Plugin returns a file that Slurm's loader would take for a plug-in of a release: sections with a dynamic symbol
// plugin_version, and nothing else.
func Plugin(major, minor int) []byte {
	const header, section, symbol = 64, 64, 24
	names := []byte("\x00plugin_version\x00")
	symbols := make([]byte, 2*symbol)
	le := binary.LittleEndian
	le.PutUint32(symbols[symbol:], 1) // its name
	symbols[symbol+4] = byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_OBJECT)
	le.PutUint16(symbols[symbol+6:], 3) // the section with its value
	le.PutUint64(symbols[symbol+16:], 4)
	value := le.AppendUint32(nil, uint32(major<<16|minor<<8))
	titles := []byte("\x00.dynsym\x00.dynstr\x00.data\x00.shstrtab\x00")
	b := make([]byte, header)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], uint16(elf.ET_DYN))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], 1)
	var table []byte
	add := func(title int, kind elf.SectionType, link, entry int, text []byte) {
		s := make([]byte, section)
		le.PutUint32(s, uint32(title))
		le.PutUint32(s[4:], uint32(kind))
		le.PutUint64(s[24:], uint64(len(b)))
		le.PutUint64(s[32:], uint64(len(text)))
		le.PutUint32(s[40:], uint32(link))
		le.PutUint64(s[56:], uint64(entry))
		table, b = append(table, s...), append(b, text...)
	}
	add(0, elf.SHT_NULL, 0, 0, nil)
	add(1, elf.SHT_DYNSYM, 2, symbol, symbols)
	add(9, elf.SHT_STRTAB, 0, 0, names)
	add(17, elf.SHT_PROGBITS, 0, 0, value)
	add(23, elf.SHT_STRTAB, 0, 0, titles)
	le.PutUint64(b[40:], uint64(len(b))) // where the sections are
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], section)
	le.PutUint16(b[60:], 5)
	le.PutUint16(b[62:], 4)
	return append(b, table...)
}
