package inside

import (
	"slices"
	"strings"
	"testing"
)

// TestPrologLine is Slurm's protocol of a TaskProlog's output (slurm.conf(5), TaskProlog).
func TestPrologLine(t *testing.T) {
	var printed strings.Builder
	env := []string{"A=1", "B=2", "AB=3"}
	for _, line := range []string{"export C=x y = z", "unset B", "export A=new", "print hello there", "print  ",
		"noise", "exporting D=1", "export", "export =x", "unset", "  export E=", "unset N", "PRINT no"} {
		var text string
		env, text = prologLine(env, line)
		printed.WriteString(text)
	}
	if want := []string{"AB=3", "C=x y = z", "A=new", "E="}; !slices.Equal(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
	if printed.String() != "hello there\n\n" {
		t.Errorf("printed %q", printed.String())
	}
}
