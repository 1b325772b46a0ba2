package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/grange-project/grange"

// top is the root of the source tree.
const top = "../.."

// source is one Go file.
type source struct {
	path    string // from the root
	pkg     string // directory from the root, as internal/farm
	name    string // in its package clause
	test    bool
	imports []string // of this module without its name: "internal/farm"; all others as they are
	lines   int
	ast     *ast.File
}

// own reports whether an import, as source.imports has it, is of this module.
func own(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first == "api" || first == "cmd" || first == "e2e" || first == "internal"
}

// standard reports whether it is of the standard library: no other path begins without a dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !own(path) && !strings.Contains(first, ".")
}

// sources parses every Go file of the module, test data left out.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	files := token.NewFileSet()
	walk(t, ".go", func(path string, text []byte) {
		file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s := source{path: path, pkg: filepath.Dir(path), name: file.Name.Name,
			test: strings.HasSuffix(path, "_test.go"), lines: strings.Count(string(text), "\n"), ast: file}
		for _, i := range file.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			s.imports = append(s.imports, strings.TrimPrefix(name, module+"/"))
		}
		all = append(all, s)
	})
	if len(all) < 50 {
		t.Fatalf("%d Go files found: the tests look in the wrong place", len(all))
	}
	return all
}

// walk calls each with every file whose name ends so, by its path from the root.
func walk(t *testing.T, ending string, each func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != top && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ending) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(top, path)
		each(below, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// below reports whether pkg is dir or lies in it.
func below(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }
