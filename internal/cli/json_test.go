package cli

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// TestWithoutJSON: a command that prints no JSON refuses to be asked for it.
func TestWithoutJSON(t *testing.T) {
	var all []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() {
			all = append(all, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(grange(&app.App{}))
	for path := range app.WithoutJSON {
		if !slices.Contains(all, path) {
			t.Errorf("no command %q", path)
			continue
		}
		words := append(strings.Fields(path)[1:], "--json")
		if path == "grange ssh" || path == "grange vm connect" {
			words = append(words, "web", "22")[:len(words)+strings.Count(path, " ")]
		}
		_, err := run(t, words...)
		if own := new(farm.Error); !errors.As(err, &own) || own.Code != farm.CodeUsage ||
			!strings.Contains(own.Message, "prints no JSON") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// textOnly are the functions behind the commands of WithoutJSON.
var textOnly = []string{"condorCronCommand", "condorPrepareCommand", "gridEngineSensor", "lsfElim", "recordHost", "runSim",
	"tellLists", "vmConnect"}

// TestPrintsJSON: each function that prints looks whether JSON is asked for, or everything that calls it does.
func TestPrintsJSON(t *testing.T) {
	prints, looks, commands, callers := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string][]string{}
	var names []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name.Name == "Tree" { // which only defines the flag
				continue
			}
			if results := f.Type.Results; results != nil && len(results.List) == 1 {
				pointer, _ := results.List[0].Type.(*ast.StarExpr)
				commands[f.Name.Name] = pointer != nil
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					name := n.Sel.Name
					prints[f.Name.Name] = prints[f.Name.Name] || name == "Out"
					looks[f.Name.Name] = looks[f.Name.Name] || name == "JSON" || name == "PrintJSON" ||
						name == "NewJSON"
					callers[name] = append(callers[name], f.Name.Name)
				case *ast.CallExpr:
					if function, ok := n.Fun.(*ast.Ident); ok {
						callers[function.Name] = append(callers[function.Name], f.Name.Name)
					}
				}
				return true
			})
		}
	}
	var sound func(name string, seen []string) bool
	sound = func(name string, seen []string) bool {
		if looks[name] || slices.Contains(textOnly, name) || slices.Contains(seen, name) {
			return true
		}
		if commands[name] {
			return false
		}
		from := slices.DeleteFunc(slices.Clone(callers[name]), func(c string) bool { return c == name })
		return len(from) > 0 && !slices.ContainsFunc(from, func(c string) bool { return !sound(c, append(seen, name)) })
	}
	for _, name := range slices.Sorted(maps.Keys(prints)) {
		if prints[name] && !sound(name, nil) {
			t.Errorf("%s prints, and nothing looks whether JSON is asked for", name)
		}
	}
}
