package archtest

import (
	"go/ast"
	"testing"
)

// Bounds of a type and of a package. A package that is larger is listed with its size, which may only fall.
const (
	mostMethods = 40
	mostLines   = 6000
)

// internal/agent keeps VMs between the steps of an allocation, which is part of a VM's life there: 130 lines.
// internal/tuning has a short file for each rule of the audit, and grows with their number.
var largePackages = map[string]int{"internal/agent": 6650, "internal/tuning": 10450}

// receiver is the type of a method; "" of a function.
func receiver(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// TestSizes: a type with too many methods, and a package with too many lines, have rooms without walls.
func TestSizes(t *testing.T) {
	methods, lines := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if s.test || isTestPackage(s.pkg) {
			continue
		}
		lines[s.pkg] += s.lines
		for _, d := range s.ast.Decls {
			if name := receiver(d); name != "" {
				methods[s.pkg+"."+name]++
			}
		}
	}
	check := func(what string, found, large map[string]int, most, slack int) {
		for name, n := range found {
			if n > most && n > large[name] {
				t.Errorf("%s has %d %s: more than %d, or than it had", name, n, what, max(most, large[name]))
			}
		}
		for name, n := range large {
			if found[name] < n-slack {
				t.Errorf("%s has %d %s now: write that here in the place of %d", name, found[name], what, n)
			}
		}
	}
	check("methods", methods, nil, mostMethods, 0)
	check("lines", lines, largePackages, mostLines, 500)
}
