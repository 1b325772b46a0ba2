package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestQuoted keeps all that a guest wrote out of the first line, which everybody sees who sees the VM.
func TestQuoted(t *testing.T) {
	var long strings.Builder
	long.WriteString("Kernel panic - not syncing: secret\n")
	for i := range 20 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	for console, want := range map[string]string{
		"":                           "; its console is empty",
		"boot\nlogin: secret\n":      "; " + farm.ConsoleFollows,
		"Kernel panic - secret":      " in a kernel panic; " + farm.ConsoleFollows,
		long.String():                " in a kernel panic; " + farm.ConsoleFollows,
		"x in a kernel panic (x)\ny": "; " + farm.ConsoleFollows,
	} {
		first, rest, _ := strings.Cut(quoted(console), "\n")
		if first != want {
			t.Errorf("the first line of %.40q is %q, want %q", console, first, want)
		}
		if strings.Contains(console, "secret") && !strings.Contains(rest, "secret") {
			t.Errorf("%.40q lost what it is about: %q", console, rest)
		}
	}
}
