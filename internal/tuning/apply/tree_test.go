package apply

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive is a txtar file: files by name, each after a line "-- name --".
func readArchive(t testing.TB, text string) map[string]string {
	t.Helper()
	files, name := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if inner, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(inner, " --\n") {
			name = strings.TrimSuffix(inner, " --\n")
			files[name] = ""
		} else if name != "" {
			files[name] += line
		}
	}
	return files
}

// memoryDir is a new directory in memory where there is one: what is on disk after each of many steps is not what is
// tested.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "grange-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// extract lays files below a new directory. A text "-> TARGET" makes a link.
func extract(t testing.TB, files map[string]string) *os.Root {
	t.Helper()
	dir := memoryDir(t)
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(strings.TrimSpace(target), file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// look reads a whole tree but for the state of applies: entries by name.
func look(t testing.TB, root *os.Root) map[string]*File {
	t.Helper()
	out := map[string]*File{}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "." || name == "var" || name == "var/lib" || strings.HasPrefix(name, "var/lib/grange") {
			return nil
		}
		out[name], err = readFile(root, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
