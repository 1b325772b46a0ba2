package archtest

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxLines of one file: a longer one is split by noun.
const maxLines = 600

func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if s.lines > maxLines && !s.test {
			t.Errorf("%s has %d lines, more than %d: split it by noun", s.path, s.lines, maxLines)
		}
	}
}

// noNames say nothing about what is inside.
var noNames = []string{"util", "utils", "common", "helper", "helpers", "base", "types", "model", "models", "manager",
	"misc", "shared"}

func TestPackageNames(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(noNames, s.name) {
			t.Errorf("%s: package %s says nothing: name it after what it is for", s.path, s.name)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string][]string{}
	for _, s := range sources(t) {
		if s.test && strings.HasSuffix(s.name, "_test") {
			continue
		}
		if _, ok := said[s.pkg]; !ok {
			said[s.pkg] = nil
		}
		if s.ast.Doc == nil {
			continue
		}
		said[s.pkg] = append(said[s.pkg], s.path)
		begin := "Package " + s.name + " "
		if s.name == "main" {
			begin = "Command "
		}
		if text := s.ast.Doc.Text(); !strings.HasPrefix(text, begin) {
			t.Errorf("%s: its package comment does not begin with %q", s.path, begin)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(said)) {
		if len(said[pkg]) != 1 {
			t.Errorf("%s has %d package comments %v, not one", pkg, len(said[pkg]), said[pkg])
		}
	}
}

// An init runs before anyone asked, in an order that nobody sees.
func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function: make a value, and hand it on", s.path)
			}
		}
	}
}

// What the wire looks like is the business of api alone.
func TestDomainTypesCarryNoTags(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg != "internal/farm" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && f.Tag != nil {
				t.Errorf("%s: a field has the tag %s", s.path, f.Tag.Value)
			}
			return true
		})
	}
}

// TestExpressionsAreLazy: what each start of the program compiles is time that each job waits for.
func TestExpressionsAreLazy(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !strings.HasPrefix(s.pkg, "internal/") || s.pkg == "internal/lazyregexp" {
			continue
		}
		for _, d := range s.ast.Decls {
			if v, ok := d.(*ast.GenDecl); ok {
				ast.Inspect(v, func(n ast.Node) bool {
					if f, ok := n.(*ast.SelectorExpr); ok && f.Sel.Name == "MustCompile" {
						t.Errorf("%s: a variable of a package is a lazyregexp.Regexp", s.path)
					}
					return true
				})
			}
		}
	}
}
