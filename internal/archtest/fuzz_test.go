package archtest

import (
	"go/ast"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestFuzzRunsEveryTarget: `make fuzz` leaves none out.
func TestFuzzRunsEveryTarget(t *testing.T) {
	var there []string
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil && isFuzz(f) {
				there = append(there, s.pkg+"."+f.Name.Name)
			}
		}
	}
	cmd := exec.Command("go", "run", "./e2e/fuzz", "-list")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	run := strings.Fields(string(out))
	slices.Sort(there)
	slices.Sort(run)
	if !slices.Equal(there, run) || len(run) < 22 {
		t.Errorf("make fuzz runs %d targets of %d:\n%v\n%v", len(run), len(there), run, there)
	}
}

// isFuzz reports whether a function is for go test to fuzz: its one argument is a *testing.F.
func isFuzz(f *ast.FuncDecl) bool {
	if !strings.HasPrefix(f.Name.Name, "Fuzz") || len(f.Type.Params.List) != 1 {
		return false
	}
	star, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := star.X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "F"
}
